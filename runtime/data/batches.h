#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "device/row_range.h"
#include "runtime/data/tokens.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// A permutation of [0, size) that is computed, not stored: eight Feistel rounds keyed by seed and epoch over the
// next power of four, walked until the result lies below size. Part of the numerics contract: it must never change.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t operator[](std::uint64_t i) const;

 private:
  std::uint64_t size_;
  unsigned half_bits_;
  std::array<std::uint64_t, 8> keys_;
};

// The sequences of a list of token files, and which of them each micro-batch of the run takes (docs/guide.md,
// "What a step means"). Reading allocates nothing. Throws Error{usage} on construction where there is no sequence.
class Batches {
 public:
  Batches(std::vector<TokenFile> files, std::int64_t seq_len, std::int64_t micro_batch_size, DataOrder order,
          std::uint64_t seed);

  // Whole sequences of all files.
  std::uint64_t sequences() const { return first_sequence_.back(); }
  // How often a run has gone over all sequences before micro-batch k.
  double epochs_before(std::uint64_t micro_batch) const {
    return static_cast<double>(micro_batch * micro_batch_size_) / static_cast<double>(sequences());
  }
  // The sequence at `position` of the run (micro-batch k has positions k*B .. k*B+B-1).
  std::uint64_t sequence_at(std::uint64_t position) const;

  // Micro-batch k of the run: tokens, labels, positions and documents are [micro_batch_size * seq_len] each.
  // A sequence is one document.
  void fill(std::uint64_t micro_batch, std::span<std::uint32_t> tokens, std::span<std::int32_t> labels,
            std::span<std::uint32_t> positions, std::span<device::RowRange> documents) const;
  // Labels of micro-batch k that count: known without reading it.
  std::uint64_t labels(std::uint64_t micro_batch) const;

 private:
  void fill_sequence(std::uint64_t sequence, std::span<std::uint32_t> tokens, std::span<std::int32_t> labels) const;

  std::vector<TokenFile> files_;
  std::vector<std::uint64_t> first_sequence_;  // of each file, and the total
  std::uint64_t seq_len_, micro_batch_size_, seed_;
  DataOrder order_;
};

}  // namespace strata::runtime
