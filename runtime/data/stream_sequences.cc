#include "runtime/data/stream_sequences.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/ops/cross_entropy.h"

namespace strata::runtime {

StreamSequences::StreamSequences(std::vector<TokenFile> files, std::uint64_t seq_len, Rest rest)
    : files_(std::move(files)), first_sequence_{0}, seq_len_(seq_len) {
  for (const TokenFile& file : files_) {
    const std::uint64_t labels = file.count() - 1;  // the first token is nobody's label
    const std::uint64_t more = rest == Rest::shorter ? seq_len - 1 : 0;
    first_sequence_.push_back(first_sequence_.back() + (labels + more) / seq_len);
  }
}

StreamSequences::Place StreamSequences::place_of(std::uint64_t sequence) const {
  const auto after = std::upper_bound(first_sequence_.begin(), first_sequence_.end(), sequence);
  const auto index = static_cast<std::size_t>(after - first_sequence_.begin()) - 1;
  const TokenFile& file = files_[index];
  const std::uint64_t begin = (sequence - first_sequence_[index]) * seq_len_;
  return {file, begin, std::min(seq_len_, file.count() - 1 - begin)};
}

std::uint64_t StreamSequences::labels(std::uint64_t sequence) const {
  return place_of(sequence).rows;
}

void StreamSequences::fill(std::uint64_t sequence, const Rows& rows) const {
  const auto [file, begin, count] = place_of(sequence);
  file.read(begin, rows.tokens.first(count));
  std::uint32_t next = 0;
  file.read(begin + count, {&next, 1});
  for (std::uint64_t i = 0; i + 1 < count; ++i) rows.labels[i] = static_cast<std::int32_t>(rows.tokens[i + 1]);
  rows.labels[count - 1] = static_cast<std::int32_t>(next);
  std::fill(rows.tokens.begin() + static_cast<std::ptrdiff_t>(count), rows.tokens.end(), 0u);
  std::fill(rows.labels.begin() + static_cast<std::ptrdiff_t>(count), rows.labels.end(), device::kIgnoredLabel);
  for (std::uint64_t i = 0; i < seq_len_; ++i) rows.positions[i] = static_cast<std::uint32_t>(i);
  std::fill(rows.documents.begin(), rows.documents.end(), device::RowRange{0, static_cast<std::uint32_t>(seq_len_)});
}

std::unique_ptr<Sequences> whole_sequences(std::vector<TokenFile> files, std::int64_t seq_len) {
  std::uint64_t most = 0;
  for (const TokenFile& file : files) most = std::max(most, file.count());
  const std::size_t count = files.size();
  auto out = std::make_unique<StreamSequences>(std::move(files), static_cast<std::uint64_t>(seq_len),
                                               StreamSequences::Rest::left_out);
  if (out->size() == 0)
    fail(Exit::usage, "data.seq_len = {} needs a token file of at least {} tokens; the largest of {} has {}", seq_len,
         seq_len + 1, count, most);
  return out;
}

std::unique_ptr<Sequences> every_label(std::vector<TokenFile> files, std::int64_t seq_len) {
  auto out = std::make_unique<StreamSequences>(std::move(files), static_cast<std::uint64_t>(seq_len),
                                               StreamSequences::Rest::shorter);
  if (out->size() == 0) fail(Exit::usage, "data.validation has no two tokens in a row, so there is nothing to predict");
  return out;
}

}  // namespace strata::runtime
