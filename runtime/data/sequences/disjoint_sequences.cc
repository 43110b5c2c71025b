#include "runtime/data/sequences/disjoint_sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace strata::runtime {

DisjointSequences::DisjointSequences(std::unique_ptr<Sequences> sequences, std::int64_t seq_len,
                                     std::int64_t micro_batch_size, std::uint64_t most)
    : all_(std::move(sequences)),
      seq_len_(static_cast<std::uint64_t>(seq_len)),
      micro_batch_size_(static_cast<std::uint64_t>(micro_batch_size)),
      sequences_(std::min(most, all_->size())) {
  for (std::uint64_t sequence = 0; sequence < sequences_; ++sequence) labels_ += all_->labels(sequence);
}

void DisjointSequences::fill(std::uint64_t micro_batch, const Rows& rows) const {
  fill_micro_batch(rows, micro_batch_size_, seq_len_, [&](std::uint64_t b, const Rows& own) {
    const std::uint64_t sequence = micro_batch * micro_batch_size_ + b;
    if (sequence < sequences_) {
      all_->fill(sequence, 0, own);
      return all_->column();
    }
    fill_without_document(own);
    std::iota(own.positions.begin(), own.positions.end(), 0u);
    std::ranges::fill(own.documents, device::RowRange{0, static_cast<std::uint32_t>(seq_len_)});
    return static_cast<const LabelColumn*>(nullptr);
  });
}

}  // namespace strata::runtime
