#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/numeric/storage_format.h"
#include "device/row_range.h"
#include "models/adapter.h"
#include "models/flat_range.h"
#include "models/objective.h"
#include "models/parameter.h"

namespace strata::models {

// The shape of a micro-batch and the settings that are fixed for a run. Products are prepared for this shape.
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
  // The maximum number of rows of a micro-batch that enter the loss; 0: all.
  std::size_t loss_rows = 0;
  // The weights of a classifier's classes in its loss; empty: 1 each.
  std::vector<float> class_weights = {};
  // Tensors that are not trained: globs of names (is_frozen_by).
  std::vector<std::string> freeze = {};
  // Low-rank adapters of linear layers; with them, everything but modules_to_save is frozen. Null: none.
  std::shared_ptr<const Adapter> adapter = {};
  // The format of the frozen matrices of blocks' linear layers; nullopt: the compute dtype.
  std::optional<device::StorageFormat> quantise = {};
  // If the model's files hold quantised matrices, the modules that are not quantised; null: the files hold numbers.
  std::shared_ptr<const std::vector<std::string>> not_quantised = {};
  // The virtual shards that blocks are computed in (models/layers/linear/split_linear.h). Their number, a power of two,
  // is part of the numerics; the choice of those that this rank computes is not.
  ShardRange shards = {};
  // Ranks that share the blocks divide the rows between them, except in products and attention (sequence parallelism,
  // Korthikanti et al. 2022). Their number divides tokens(), and the model's width is a multiple of 4.
  bool sequence = false;

  std::size_t tokens() const { return batch * seq; }
  bool divides_rows() const { return sequence && shards.count < shards.of; }
  // The blocks in which norms sum their gradients (models/layers/norm_part.h): all, or the blocks of this rank's rows.
  ShardRange row_blocks() const { return divides_rows() ? shards : ShardRange{0, shards.of, shards.of}; }
  // This rank's rows: all of them, or its part.
  ElementRange own_rows() const {
    if (!divides_rows()) return {0, tokens()};
    const std::size_t rows = tokens() * shards.count / shards.of, begin = rows * (shards.first / shards.count);
    return {begin, begin + rows};
  }
  float adapter_dropout() const { return adapter ? static_cast<float>(adapter->dropout) : 0; }
};

// One micro-batch in device memory: columns of [tokens] each, except loss_rows.
struct Batch {
  const std::uint32_t* tokens;
  const std::int32_t* labels;         // labels of the rows that enter the loss: the first entries of the column
  const std::uint32_t* positions;     // the position in the row's document; see place_padding()
  const device::RowRange* documents;  // each row's document: attention sees no other rows
  // The rows that enter the loss, ascending. The rest of the column names row 0, with labels that do not count. null:
  // all rows.
  const std::uint32_t* loss_rows = nullptr;
  const std::uint32_t* types = nullptr;  // token types; null: all are 0
  // The sets of classes of the rows that enter the loss (device::class_set_words()); null: the labels hold the targets.
  const std::uint32_t* class_sets = nullptr;
};

// The same columns as writable host memory, or the rows of one sequence in it.
struct BatchRows {
  std::span<std::uint32_t> tokens;
  std::span<std::int32_t> labels;  // device::kIgnoredLabel: the row does not count
  std::span<std::uint32_t> positions;
  std::span<device::RowRange> documents;
  std::span<std::uint32_t> loss_rows = {};    // the whole micro-batch's; empty: all rows
  std::span<std::uint32_t> types = {};        // token types; empty: the model has none
  std::optional<std::uint32_t> padding = {};  // the token without a position, if there is one
  std::span<std::uint32_t> class_sets = {};   // the whole micro-batch's, equally many words per row; empty: none

  // The result has no loss_rows and no class_sets.
  BatchRows subrows(std::size_t begin, std::size_t count) const {
    return {tokens.subspan(begin, count),
            labels.subspan(begin, count),
            positions.subspan(begin, count),
            documents.subspan(begin, count),
            {},
            types.empty() ? types : types.subspan(begin, count),
            padding};
  }
};

// If the model has a padding token, the token's rows get position 0, and the other rows of each document get 1, 2, 3
// ... Call this once, on filled columns whose positions begin at 0 in each document.
void place_padding(const BatchRows& rows);

// The layout of a micro-batch's columns in memory.
struct BatchShape {
  std::size_t tokens = 0;
  std::size_t loss_rows = 0;  // the maximum number of rows that enter the loss; 0: all rows, and no column lists them
  bool types = false;         // has a column of token types
  std::optional<std::uint32_t> padding = {};  // BatchRows::padding
  std::size_t class_words = 0;                // words of the set of classes of a row that enters the loss

  std::size_t set_words() const { return class_words * (loss_rows > 0 ? loss_rows : tokens); }
  std::size_t bytes() const {
    return tokens * ((types ? 4 : 3) * sizeof(std::uint32_t) + sizeof(device::RowRange)) +
           (loss_rows + set_words()) * sizeof(std::uint32_t);
  }
  Batch at(const std::byte* memory) const;
  BatchRows rows(std::byte* memory) const;
};

}  // namespace strata::models
