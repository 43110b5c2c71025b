#include "runtime/data/disjoint_sequences.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/ops/cross_entropy.h"

namespace strata::runtime {

DisjointSequences::DisjointSequences(std::vector<TokenFile> files, std::int64_t seq_len, std::int64_t micro_batch_size)
    : files_(std::move(files)),
      first_sequence_{0},
      seq_len_(static_cast<std::uint64_t>(seq_len)),
      micro_batch_size_(static_cast<std::uint64_t>(micro_batch_size)) {
  for (const TokenFile& file : files_) {
    const std::uint64_t labels = file.count() - 1;  // the first token is nobody's label
    first_sequence_.push_back(first_sequence_.back() + (labels + seq_len_ - 1) / seq_len_);
    labels_ += labels;
  }
  if (labels_ == 0) fail(Exit::usage, "data.validation has no two tokens in a row, so there is nothing to predict");
}

void DisjointSequences::fill(std::uint64_t micro_batch, std::span<std::uint32_t> tokens, std::span<std::int32_t> labels,
                             std::span<std::uint32_t> positions, std::span<device::RowRange> documents) const {
  const std::uint64_t elements = micro_batch_size_ * seq_len_;
  STRATA_CHECK_EQ(tokens.size(), elements);
  STRATA_CHECK_EQ(labels.size(), elements);
  STRATA_CHECK_EQ(positions.size(), elements);
  STRATA_CHECK_EQ(documents.size(), elements);
  std::fill(documents.begin(), documents.end(), device::RowRange{0, static_cast<std::uint32_t>(seq_len_)});
  std::fill(tokens.begin(), tokens.end(), 0u);
  std::fill(labels.begin(), labels.end(), device::kIgnoredLabel);
  for (std::uint64_t b = 0; b < micro_batch_size_; ++b) {
    const std::uint64_t sequence = micro_batch * micro_batch_size_ + b;
    if (sequence < sequences())
      fill_sequence(sequence, tokens.subspan(b * seq_len_, seq_len_), labels.subspan(b * seq_len_, seq_len_));
    for (std::uint64_t i = 0; i < seq_len_; ++i) positions[b * seq_len_ + i] = static_cast<std::uint32_t>(i);
  }
}

void DisjointSequences::fill_sequence(std::uint64_t sequence, std::span<std::uint32_t> tokens,
                                      std::span<std::int32_t> labels) const {
  const auto after = std::upper_bound(first_sequence_.begin(), first_sequence_.end(), sequence);
  const auto index = static_cast<std::size_t>(after - first_sequence_.begin()) - 1;
  const TokenFile& file = files_[index];
  const std::uint64_t begin = (sequence - first_sequence_[index]) * seq_len_;
  const std::uint64_t count = std::min(seq_len_, file.count() - 1 - begin);
  file.read(begin, tokens.first(count));
  std::uint32_t next = 0;
  file.read(begin + count, {&next, 1});
  for (std::uint64_t i = 0; i + 1 < count; ++i) labels[i] = static_cast<std::int32_t>(tokens[i + 1]);
  labels[count - 1] = static_cast<std::int32_t>(next);
}

}  // namespace strata::runtime
