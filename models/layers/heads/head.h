#pragma once
// models/layers/heads/ holds the ends of models: next-token and masked-token prediction (this header), classes of
// documents and tokens (class_head.h), and what comes before them: a pooled row or a transform.
#include <memory>
#include <optional>
#include <string>

#include "models/model.h"

namespace strata::models {

// A masked language model's step between its last block and the head's norm and projection: y = gelu(x W + b), with b
// if there is one, and the GELU of erf.
struct PredictionTransformSpec {
  std::string name;  // the dense layer's name, without ".weight" and ".bias"
  float deviation;
  bool bias = true;
  std::string entry_gain = {};  // the head has a LayerNorm without a bias before it; none if empty
};

struct HeadSpec {
  std::string gain_name, bias_name;  // LayerNorm; RMSNorm if bias_name is empty, unless `centred`
  std::string weight_name;
  std::size_t vocabulary, hidden;
  float eps;
  Init init;
  std::optional<SharedParameter> tied = {};  // the table that the projection is tied to; none: a parameter of its own
  std::string logit_bias_name = {};          // [vocabulary], added to the logits; none if empty
  std::optional<PredictionTransformSpec> transform = {};  // applied before the norm
  bool centred = false;                                   // LayerNorm, with or without a bias
};

// The last unit: final norm, projection to the vocabulary and cross-entropy, with forward and backward in one pass over
// chunks of rows and tiles of the vocabulary. It takes the rows that RunShape::loss_rows selects. The projection's
// gradient is summed over chunks, and the input's over tiles, in fp32 and rounded once. If the run does not train, it
// has no gradients. In the step-by-step form (a table gathered by tiles), the logits are computed twice.
std::unique_ptr<LossUnit> make_head(const HeadSpec& spec, const RunShape& run);

}  // namespace strata::models
