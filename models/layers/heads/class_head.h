#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/ops/losses/class_loss.h"
#include "models/model.h"

namespace strata::models {

// What a classifier does behind its dense layer.
enum class Squash : std::uint8_t { tanh, relu, gelu };

struct ClassHeadSpec {
  std::size_t hidden, classes;
  device::ClassTarget target;
  Init init;
  // The final norm, of families whose blocks have theirs before: LayerNorm; if norm_bias is empty RMSNorm, or, if
  // centred, LayerNorm without a bias; none if norm_gain is empty.
  std::string norm_gain = {}, norm_bias = {};
  bool centred = false;
  float eps = 0;
  // Above 0: the scores are of the mean over a document's normalized rows, of attention's heads, so many.
  std::size_t mean_heads = 0;
  // A dense layer of the model's width before the scores; none if empty. Before ".weight" and ".bias".
  std::string dense = {};
  Squash squash = Squash::tanh;
  bool dense_biased = true;
  std::string dense_norm = {};                   // of a LayerNorm without a bias behind it; none if empty
  std::string scores;                            // the same of the layer that gives the scores
  bool biased = true;                            // whether that has a bias
  float dropout_before = 0, dropout_behind = 0;  // of the dense layer; without one only the latter
};

// The last unit of a classifier: of the rows that the loss takes (RunShape::loss_rows) the scores of each class, and
// their loss.
std::unique_ptr<LossUnit> make_class_head(const ClassHeadSpec& spec, const RunShape& run);

}  // namespace strata::models
