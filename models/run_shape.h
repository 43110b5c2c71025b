#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/numeric/storage_format.h"
#include "models/adapter.h"
#include "models/flat_range.h"
#include "models/objective.h"
#include "models/parameter.h"

namespace strata::models {

// The shape of a micro-batch, and what is fixed for a run. Products are prepared for it.
struct RunShape {
  std::size_t batch, seq;  // number of sequences, tokens per sequence
  device::DType dtype;     // the compute dtype: parameters, activations and gradients of one micro-batch
  int threads;             // threads of the compute lane; affects workspace sizes, never results
  bool training = true;    // false: only forwards and losses, without dropout
  // Above 0: one sequence is generated in pieces of at most `seq` tokens, up to `cache` tokens in all. Forwards attend
  // to earlier positions through a cache of keys and values, and the head returns logits instead of a loss.
  std::size_t cache = 0;
  device::Device device = {};
  // Sequences may contain more or less than one document, so attention that only handles complete sequences (cuDNN) is
  // not used.
  bool packed = false;
  // nullopt: the objective of the model's configuration.
  std::optional<Objective> objective = {};
  // The most rows of a micro-batch that enter the loss; 0: all.
  std::size_t loss_rows = 0;
  // The weights of a classifier's classes in its loss; empty: 1 each.
  std::vector<float> class_weights = {};
  // Tensors that are not trained: globs of names (is_frozen_by).
  std::vector<std::string> freeze = {};
  // Low-rank adapters of linear layers; with them, everything but modules_to_save is frozen. Null: none.
  std::shared_ptr<const Adapter> adapter = {};
  // The format of the frozen matrices of blocks' linear layers; nullopt: the compute dtype.
  std::optional<device::StorageFormat> quantise = {};
  // For a model whose files hold quantised matrices, the modules that are not quantised; null: the files hold numbers.
  std::shared_ptr<const std::vector<std::string>> not_quantised = {};
  // The virtual shards that blocks are computed in (models/layers/linear/split_linear.h). Their number, a power of two,
  // is part of the numerics; which of them this rank computes is not.
  ShardRange shards = {};
  // Ranks that share the blocks divide the rows between them, except in products and attention (sequence parallelism,
  // Korthikanti et al. 2022). Their number divides tokens(), and the model's width is a multiple of 4.
  bool sequence = false;

  std::size_t tokens() const { return batch * seq; }
  bool divides_rows() const { return sequence && shards.count < shards.of; }
  // The blocks in which norms sum their gradients (models/layers/norm_part.h): all, or those of this rank's rows.
  ShardRange row_blocks() const { return divides_rows() ? shards : ShardRange{0, shards.of, shards.of}; }
  // The rows of this rank: all, or its part of them.
  ElementRange own_rows() const {
    if (!divides_rows()) return {0, tokens()};
    const std::size_t rows = tokens() * shards.count / shards.of, begin = rows * (shards.first / shards.count);
    return {begin, begin + rows};
  }
  float adapter_dropout() const { return adapter ? static_cast<float>(adapter->dropout) : 0; }
};

}  // namespace strata::models
