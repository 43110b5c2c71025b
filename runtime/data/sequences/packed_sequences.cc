#include "runtime/data/sequences/packed_sequences.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/ops/losses/cross_entropy.h"
#include "runtime/data/sequences/best_fit.h"
#include "runtime/data/sequences/next_token.h"

namespace strata::runtime {
namespace {

// Documents that are packed together, in file order. Part of the numerics contract.
constexpr std::uint64_t kWindow = 65536;

// use(piece, labels) of each piece that is packed, next_document() behind those of each document, in file order.
// first: of the file's tokens among those of all files.
template <typename Use, typename Next>
void walk(const TokenFile& file, const Documents& documents, std::uint64_t first, std::uint32_t seq_len,
          LongDocuments longer, const Labelling& labelling, PackingFigures& figures, Use&& use, Next&& next_document) {
  for (std::uint64_t i = 0; i < documents.count(); ++i, next_document()) {
    const std::uint64_t begin = documents.begin(i), end = documents.begin(i + 1), length = end - begin;
    ++figures.documents;
    figures.longest = std::max(figures.longest, length);
    if (length > seq_len) ++(longer == LongDocuments::cut ? figures.cut : figures.dropped);
    if (length > seq_len && longer != LongDocuments::cut) continue;
    for (std::uint64_t at = begin; at < end; at += seq_len) {
      const auto rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(seq_len, end - at));
      const Piece piece{file, &documents, i, at, end, first + at, rows};
      const std::uint32_t labels = labelling.most(piece);
      if (labels == 0) {
        ++figures.without_label;
        continue;
      }
      ++figures.pieces;
      figures.rows += rows;
      figures.squares += static_cast<double>(rows) * static_cast<double>(rows);
      use(piece, labels);
    }
  }
}

std::vector<Documents> open_documents(std::span<const TokenFile> files) {
  std::vector<Documents> out;
  for (const TokenFile& file : files) out.emplace_back(file);
  return out;
}

PackingFigures look_at(std::span<const TokenFile> files, std::span<const Documents> documents, std::uint32_t seq_len,
                       LongDocuments longer, const Labelling& labelling) {
  PackingFigures figures;
  std::uint64_t first = 0;
  for (std::size_t f = 0; f < files.size(); first += files[f++].count())
    walk(
        files[f], documents[f], first, seq_len, longer, labelling, figures, [](const Piece&, std::uint32_t) {}, [] {});
  if (longer == LongDocuments::refuse && figures.dropped > 0)
    fail(Exit::usage,
         "{} of {} documents are longer than data.seq_len = {}, the longest of {} tokens: raise data.seq_len, or take "
         "data.long = \"cut\" or \"drop\"",
         figures.dropped, figures.documents, seq_len, figures.longest);
  return figures;
}

}  // namespace

// Best fit leaves at most one sequence of a window half empty.
std::size_t PackingFigures::index_bytes(std::uint32_t seq_len) const {
  const std::uint64_t windows = (documents + kWindow - 1) / kWindow;
  const std::uint64_t sequences = std::min(pieces, 2 * rows / seq_len + windows) + 1;
  return pieces * (sizeof(std::uint64_t) + sizeof(std::uint32_t)) +
         sequences * (sizeof(std::uint64_t) + sizeof(std::uint32_t)) + 4 * alignof(std::max_align_t);
}

double PackingFigures::mean_squares(std::uint32_t seq_len) const {
  return rows == 0 ? 0 : squares / static_cast<double>(rows) * seq_len;
}

PackingFigures& PackingFigures::operator+=(const PackingFigures& other) {
  documents += other.documents;
  pieces += other.pieces;
  rows += other.rows;
  cut += other.cut;
  dropped += other.dropped;
  without_label += other.without_label;
  longest = std::max(longest, other.longest);
  squares += other.squares;
  return *this;
}

PackingFigures look_at_documents(std::span<const TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                                 const Labelling& labelling) {
  return look_at(files, open_documents(files), seq_len, longer, labelling);
}

PackedSequences::PackedSequences(std::vector<TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                                 std::pmr::memory_resource* memory, std::shared_ptr<const Labelling> labelling)
    : files_(std::move(files)),
      documents_(open_documents(files_)),
      first_token_{0},
      seq_len_(seq_len),
      labelling_(labelling ? std::move(labelling) : std::make_shared<NextToken>()),
      begin_(memory),
      first_piece_(memory),
      rows_(memory),
      labels_(memory) {
  const PackingFigures expected = look_at(files_, documents_, seq_len, longer, *labelling_);
  if (expected.pieces == 0)
    fail(Exit::usage,
         "none of the {} documents in {}{} has a label that counts, so there is nothing to learn from them",
         expected.documents, files_.empty() ? "no file" : files_.front().path().string(),
         files_.size() > 1 ? " and the files beside it" : "");
  // Once, at the size that look_at() promised: the memory may be planned, and takes nothing back.
  const std::uint64_t windows = (expected.documents + kWindow - 1) / kWindow;
  const std::uint64_t most = std::min(expected.pieces, 2 * expected.rows / seq_len + windows) + 1;
  begin_.reserve(expected.pieces);
  rows_.reserve(expected.pieces);
  first_piece_.reserve(most);
  labels_.reserve(most);
  first_piece_.push_back(0);

  BestFit best_fit(seq_len);
  struct Item {
    std::uint64_t begin;
    std::uint32_t rows, labels;
  };
  std::vector<Item> window;
  std::vector<std::uint32_t> lengths;
  const auto pack = [&] {
    lengths.clear();
    for (const Item& piece : window) lengths.push_back(piece.rows);
    const BestFit::Bins& bins = best_fit.pack(lengths);
    std::size_t at = 0;
    for (const std::uint32_t end : bins.ends) {
      std::uint32_t labels = 0;
      for (; at < end; ++at) {
        const Item& piece = window[bins.items[at]];
        begin_.push_back(piece.begin);
        rows_.push_back(piece.rows);
        labels += piece.labels;
      }
      first_piece_.push_back(begin_.size());
      labels_.push_back(labels);
    }
    window.clear();
  };
  std::uint64_t in_window = 0;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::uint64_t first = first_token_.back();
    walk(
        files_[f], documents_[f], first, seq_len, longer, *labelling_, figures_,
        [&](const Piece& piece, std::uint32_t labels) {
          window.push_back({piece.place, piece.rows, labels});
        },
        [&] {
          if (++in_window % kWindow == 0) pack();
        });
    first_token_.push_back(first + files_[f].count());
  }
  pack();
  STRATA_CHECK_LE(labels_.size() + 1, most);
}

Piece PackedSequences::piece_of(std::uint64_t piece) const {
  const auto after = std::upper_bound(first_token_.begin(), first_token_.end(), begin_[piece]);
  const auto f = static_cast<std::size_t>(after - first_token_.begin()) - 1;
  const std::uint64_t begin = begin_[piece] - first_token_[f], document = documents_[f].document_of(begin);
  return {files_[f], &documents_[f], document, begin, documents_[f].begin(document + 1), begin_[piece], rows_[piece]};
}

std::uint64_t PackedSequences::labels(std::uint64_t sequence) const {
  if (labelling_->exact()) return labels_[sequence];
  std::uint64_t sum = 0;
  for (std::uint64_t piece = first_piece_[sequence]; piece < first_piece_[sequence + 1]; ++piece)
    sum += labelling_->count(piece_of(piece));
  return sum;
}

std::uint64_t PackedSequences::most_labels() const {
  return *std::ranges::max_element(labels_);
}

void PackedSequences::fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const {
  std::uint32_t first = 0;
  for (std::uint64_t p = first_piece_[sequence]; p < first_piece_[sequence + 1]; ++p) {
    const Piece piece = piece_of(p);
    const Rows own = rows.subrows(first, piece.rows);
    piece.file.read(piece.begin, own.tokens);
    for (std::uint32_t i = 0; i < piece.rows; ++i) {
      own.positions[i] = i;
      own.documents[i] = {first, first + piece.rows};
      if (!own.types.empty()) own.types[i] = piece.documents->type(piece.begin + i);
    }
    labelling_->fill(piece, epoch, own);
    first += piece.rows;
  }
  const Rows rest = rows.subrows(first, seq_len_ - first);
  std::fill(rest.tokens.begin(), rest.tokens.end(), 0u);
  std::fill(rest.labels.begin(), rest.labels.end(), device::kIgnoredLabel);
  std::fill(rest.positions.begin(), rest.positions.end(), 0u);
  std::fill(rest.documents.begin(), rest.documents.end(), device::RowRange{});
  std::fill(rest.types.begin(), rest.types.end(), 0u);
}

}  // namespace strata::runtime
