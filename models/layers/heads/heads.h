#pragma once
// models/layers/heads/ holds the ends of models: next-token and masked-token prediction (head.cc), classes of documents
// and tokens (class_head.cc), and the layers before them: a pooled row or a transform.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "device/ops/activation.h"
#include "device/ops/losses/losses.h"
#include "models/model.h"

namespace strata::models {

// The step of a masked language model between its last block and the head's norm and projection: y = gelu(x W + b),
// with the exact GELU (erf). b is optional.
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
  std::optional<SharedParameter> tied = {};  // the table that the projection is tied to; none: it has its own
  std::string logit_bias_name = {};          // [vocabulary], added to the logits; none if empty
  std::optional<PredictionTransformSpec> transform = {};  // applied before the norm
  bool centred = false;                                   // LayerNorm, with or without a bias
};

// The last unit: final norm, projection to the vocabulary and cross-entropy, with forward and backward in one pass over
// chunks of rows and tiles of the vocabulary. It takes the rows that RunShape::loss_rows selects. The projection's
// gradient is summed over chunks, and the input's over tiles, in fp32 and rounded once. If the run does not train,
// there are no gradients. In the step-by-step form (a table gathered by tiles), the logits are computed twice.
std::unique_ptr<LossUnit> make_head(const HeadSpec& spec, const RunShape& run);

struct ClassHeadSpec {
  std::size_t hidden, classes;
  device::ClassTarget target;
  Init init;
  // The final norm, in families whose blocks normalize first: a LayerNorm. If norm_bias is empty, it is RMSNorm or, if
  // centred, a LayerNorm without a bias. If norm_gain is empty, there is no norm.
  std::string norm_gain = {}, norm_bias = {};
  bool centred = false;
  float eps = 0;
  // If above 0, the scores are computed from the mean of a document's normalized rows, by attention with this many
  // heads.
  std::size_t mean_heads = 0;
  // A dense layer of the model's width before the scores; none if empty. Without ".weight" and ".bias".
  std::string dense = {};
  device::Activation activation = device::Activation::tanh;  // after the dense layer: tanh, relu or gelu_erf
  bool dense_biased = true;
  std::string dense_norm = {};  // a LayerNorm without a bias after it; none if empty
  std::string scores;           // the name of the layer that computes the scores
  bool biased = true;           // true if that layer has a bias
  float dropout_before = 0,
        dropout_after = 0;  // before and after the dense layer; without one, only dropout_after
};

// The last unit of a classifier: the scores of all classes, for the rows that enter the loss (RunShape::loss_rows), and
// their loss.
std::unique_ptr<LossUnit> make_class_head(const ClassHeadSpec& spec, const RunShape& run);

}  // namespace strata::models
