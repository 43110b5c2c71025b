#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "device/ops/activation.h"
#include "device/ops/losses/class_loss.h"
#include "models/model.h"

namespace strata::models {

struct ClassHeadSpec {
  std::size_t hidden, classes;
  device::ClassTarget target;
  Init init;
  // The final norm, in families whose blocks normalize first. It is a LayerNorm. If norm_bias is empty, it is RMSNorm,
  // or, if centred, a LayerNorm without a bias. There is none if norm_gain is empty.
  std::string norm_gain = {}, norm_bias = {};
  bool centred = false;
  float eps = 0;
  // If above 0, the scores are computed from the mean of a document's normalized rows, with this many attention heads.
  std::size_t mean_heads = 0;
  // A dense layer of the model's width before the scores; none if empty. Without ".weight" and ".bias".
  std::string dense = {};
  device::Activation activation = device::Activation::tanh;  // after the dense layer: tanh, relu or gelu_erf
  bool dense_biased = true;
  std::string dense_norm = {};  // a LayerNorm without a bias after it; none if empty
  std::string scores;           // the name of the layer that computes the scores
  bool biased = true;           // whether that layer has a bias
  float dropout_before = 0,
        dropout_after = 0;  // before and after the dense layer; without one, only dropout_after
};

// The last unit of a classifier: the scores of each class, for the rows that enter the loss (RunShape::loss_rows), and
// their loss.
std::unique_ptr<LossUnit> make_class_head(const ClassHeadSpec& spec, const RunShape& run);

}  // namespace strata::models
