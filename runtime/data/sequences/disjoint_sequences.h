#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/row_range.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"

namespace strata::runtime {

// Sequences as an evaluation reads them: each once, one after the other. What is missing behind the last is token 0
// with a label that does not count.
class DisjointSequences {
 public:
  // most: of the sequences; the others are not there. What the sequences keep is where it is to be (keep_in).
  DisjointSequences(std::unique_ptr<Sequences> sequences, std::int64_t seq_len, std::int64_t micro_batch_size,
                    std::uint64_t most = kAllSequences);
  // Of a stream, every label once, the last sequence of a file shorter where it does not come out even. Throws
  // Error{usage} where there is no label.
  DisjointSequences(std::vector<TokenFile> files, std::int64_t seq_len, std::int64_t micro_batch_size);

  std::uint64_t sequences() const { return sequences_; }
  std::uint64_t micro_batches() const { return (sequences() + micro_batch_size_ - 1) / micro_batch_size_; }
  // That count, over all sequences.
  std::uint64_t labels() const { return labels_; }

  // Sequences [k*B, (k+1)*B), B = micro_batch_size; columns are [B * seq_len] each.
  void fill(std::uint64_t micro_batch, const Rows& rows) const;

 private:
  std::unique_ptr<Sequences> all_;
  std::uint64_t seq_len_, micro_batch_size_, sequences_ = 0, labels_ = 0;
};

}  // namespace strata::runtime
