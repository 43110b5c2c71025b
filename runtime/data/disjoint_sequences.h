#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "device/row_range.h"
#include "runtime/data/tokens.h"

namespace strata::runtime {

// Token files as an evaluation reads them: cut into sequences of seq_len inputs one behind the other, every label once,
// the last sequence of a file shorter where it does not come out even. What is missing behind a shorter one, or behind
// the last, is token 0 with a label that does not count. Throws Error{usage} on construction where there is no label.
class DisjointSequences {
 public:
  DisjointSequences(std::vector<TokenFile> files, std::int64_t seq_len, std::int64_t micro_batch_size);

  std::uint64_t sequences() const { return first_sequence_.back(); }
  std::uint64_t micro_batches() const { return (sequences() + micro_batch_size_ - 1) / micro_batch_size_; }
  // That count, over all sequences.
  std::uint64_t labels() const { return labels_; }

  // Sequences [k*B, (k+1)*B), B = micro_batch_size; spans are [B * seq_len] each. A sequence, with what is missing
  // behind it, is one document.
  void fill(std::uint64_t micro_batch, std::span<std::uint32_t> tokens, std::span<std::int32_t> labels,
            std::span<std::uint32_t> positions, std::span<device::RowRange> documents) const;

 private:
  void fill_sequence(std::uint64_t sequence, std::span<std::uint32_t> tokens, std::span<std::int32_t> labels) const;

  std::vector<TokenFile> files_;
  std::vector<std::uint64_t> first_sequence_;  // of each file, and the total
  std::uint64_t seq_len_, micro_batch_size_, labels_ = 0;
};

}  // namespace strata::runtime
