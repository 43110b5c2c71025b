#include "runtime/data/sequences/disjoint_sequences.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/ops/losses/cross_entropy.h"

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
  const std::uint64_t elements = micro_batch_size_ * seq_len_;
  STRATA_CHECK_EQ(rows.tokens.size(), elements);
  STRATA_CHECK_EQ(rows.labels.size(), elements);
  STRATA_CHECK_EQ(rows.positions.size(), elements);
  STRATA_CHECK_EQ(rows.documents.size(), elements);
  std::span<std::uint32_t> sets = rows.class_sets;
  for (std::uint64_t b = 0; b < micro_batch_size_; ++b) {
    const std::uint64_t sequence = micro_batch * micro_batch_size_ + b;
    const Rows own = rows.subrows(b * seq_len_, seq_len_);
    if (sequence < sequences_) {
      all_->fill(sequence, 0, own);
      sets = write_class_sets(all_->column(), own.labels, sets);
      continue;
    }
    std::fill(own.tokens.begin(), own.tokens.end(), 0u);
    std::fill(own.labels.begin(), own.labels.end(), device::kIgnoredLabel);
    std::fill(own.types.begin(), own.types.end(), 0u);
    for (std::uint64_t i = 0; i < seq_len_; ++i) own.positions[i] = static_cast<std::uint32_t>(i);
    std::fill(own.documents.begin(), own.documents.end(), device::RowRange{0, static_cast<std::uint32_t>(seq_len_)});
  }
  models::place_padding(rows);
  take_labelled(rows);
}

}  // namespace strata::runtime
