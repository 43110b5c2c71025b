#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/row_range.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"

namespace strata::runtime {

// Sequences as an evaluation reads them: each once, in order. After the last one, the micro-batch is filled with token
// 0 and a label that does not count.
class DisjointSequences {
 public:
  // `most`: the number of sequences used. What the sequences keep must already be in its memory (keep_in).
  DisjointSequences(std::unique_ptr<Sequences> sequences, std::int64_t seq_len, std::int64_t micro_batch_size,
                    std::uint64_t most = kAllSequences);

  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t micro_batches() const { return (sequences() + micro_batch_size_ - 1) / micro_batch_size_; }
  // The labels that count, over all sequences.
  std::uint64_t labels() const { return labels_; }

  // Sequences [k*B, (k+1)*B), B = micro_batch_size; columns are [B * seq_len] each.
  void fill(std::uint64_t micro_batch, const Rows& rows) const;

 private:
  std::unique_ptr<Sequences> all_;
  std::uint64_t seq_len_, micro_batch_size_, sequences_ = 0, labels_ = 0;
};

}  // namespace strata::runtime
