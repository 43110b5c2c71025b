#include "runtime/data/sequences/stream_sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace strata::runtime {

StreamSequences::StreamSequences(std::vector<TokenFile> files, std::uint64_t seq_len, Rest rest,
                                 std::shared_ptr<Labelling> labelling, std::uint64_t most)
    : Sequences(std::move(files), std::move(labelling)),
      first_sequence_{0},
      first_token_{0},
      seq_len_(seq_len),
      most_(most) {
  for (const TokenFile& file : files_) {
    const std::uint64_t labels = file.count() - 1;  // the first token is not a label
    const std::uint64_t more = rest == Rest::shorter ? seq_len - 1 : 0;
    first_sequence_.push_back(first_sequence_.back() + (labels + more) / seq_len);
    first_token_.push_back(first_token_.back() + file.count());
  }
}

Piece StreamSequences::piece_of(std::uint64_t sequence) const {
  const auto after = std::upper_bound(first_sequence_.begin(), first_sequence_.end(), sequence);
  const auto index = static_cast<std::size_t>(after - first_sequence_.begin()) - 1;
  const TokenFile& file = files_[index];
  const std::uint64_t number = sequence - first_sequence_[index], begin = number * seq_len_;
  return {file,
          nullptr,
          number,
          begin,
          file.count(),
          first_token_[index] + begin,
          static_cast<std::uint32_t>(std::min(seq_len_, file.count() - 1 - begin))};
}

std::size_t StreamSequences::index_bytes() const {
  const std::size_t counts = labelling_->exact() ? 0 : std::min(most_, size()) * sizeof(std::uint32_t);
  return counts + alignof(std::max_align_t) + column_bytes();
}

void StreamSequences::keep_in(std::pmr::memory_resource* memory) {
  keep_column_in(memory);
  if (labelling_->exact() || labels_) return;
  labels_.emplace(memory).reserve(std::min(most_, size()));
  for (std::uint64_t sequence = 0; sequence < std::min(most_, size()); ++sequence)
    labels_->push_back(labelling_->count(piece_of(sequence)));
  for (const TokenFile& file : files_) file.require_untruncated();
}

std::uint64_t StreamSequences::labels(std::uint64_t sequence) const {
  if (labelling_->exact()) return labelling_->most(piece_of(sequence));
  STRATA_CHECK(labels_.has_value());
  return (*labels_)[sequence];
}

// A file's first sequence is the longest.
std::uint64_t StreamSequences::max_labels() const {
  std::uint64_t most = 0;
  for (std::size_t f = 0; f < files_.size(); ++f)
    if (first_sequence_[f] < first_sequence_[f + 1])
      most = std::max<std::uint64_t>(most, labelling_->most(piece_of(first_sequence_[f])));
  return most;
}

void StreamSequences::fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const {
  const Piece piece = piece_of(sequence);
  const Rows own = rows.subrows(0, piece.rows);
  fill_without_document(rows.subrows(piece.rows, seq_len_ - piece.rows));
  for (std::uint64_t i = 0; i < seq_len_; ++i) rows.positions[i] = static_cast<std::uint32_t>(i);
  std::fill(own.documents.begin(), own.documents.end(), device::RowRange{0, piece.rows});
  piece.file.read(piece.begin, own.tokens);
  labelling_->fill(piece, epoch, own);
  std::fill(own.types.begin(), own.types.end(), 0u);
}

std::unique_ptr<Sequences> full_sequences(std::vector<TokenFile> files, std::int64_t seq_len,
                                          std::shared_ptr<Labelling> labelling) {
  std::uint64_t most = 0;
  for (const TokenFile& file : files) most = std::max(most, file.count());
  const std::size_t count = files.size();
  auto out = std::make_unique<StreamSequences>(std::move(files), static_cast<std::uint64_t>(seq_len),
                                               StreamSequences::Rest::left_out, std::move(labelling));
  if (out->size() == 0)
    fail(Exit::usage, "data.seq_len = {} needs a token file of at least {} tokens; the largest of {} has {}", seq_len,
         seq_len + 1, count, most);
  return out;
}

std::unique_ptr<Sequences> every_label(std::vector<TokenFile> files, std::int64_t seq_len,
                                       std::shared_ptr<Labelling> labelling, std::uint64_t most) {
  auto out = std::make_unique<StreamSequences>(std::move(files), static_cast<std::uint64_t>(seq_len),
                                               StreamSequences::Rest::shorter, std::move(labelling), most);
  if (out->size() == 0)
    fail(Exit::usage, "data.validation has no two tokens in a row, so there is nothing to predict: name longer files");
  return out;
}

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
