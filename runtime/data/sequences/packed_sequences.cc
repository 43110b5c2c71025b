#include "runtime/data/sequences/packed_sequences.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"

namespace strata::runtime {

namespace {

// The number of documents packed together, in file order. Part of the numerics contract.
constexpr std::uint64_t kWindow = 65536;

std::vector<Documents> open_documents(std::span<const TokenFile> files) {
  std::vector<Documents> out;
  for (const TokenFile& file : files) out.emplace_back(file);
  return out;
}

// An upper bound on the number of sequences: in each window, at most one is less than half full.
std::uint64_t max_sequences(const PackingFigures& figures, std::uint32_t seq_len) {
  const std::uint64_t windows = (figures.documents + kWindow - 1) / kWindow;
  return std::min(figures.pieces, 2 * figures.rows / seq_len + windows);
}

}  // namespace

std::size_t PackingFigures::index_bytes(std::uint32_t seq_len) const {
  const std::uint64_t sequences = max_sequences(*this, seq_len) + 1;
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

PackedSequences::Index::Index(Index& other, std::pmr::memory_resource* memory) : Index(memory) {
  const auto take = [](auto& to, auto& from) {
    to.assign(from.begin(), from.end());
    std::remove_reference_t<decltype(from)>(from.get_allocator()).swap(from);
  };
  take(begin, other.begin);
  take(first_piece, other.first_piece);
  take(rows, other.rows);
  take(labels, other.labels);
}

PackedSequences::PackedSequences(std::vector<TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                                 std::shared_ptr<Labelling> labelling, Pack pack, std::uint64_t most)
    : Sequences(std::move(files), std::move(labelling)),
      documents_(open_documents(files_)),
      first_token_{0},
      seq_len_(seq_len),
      longer_(longer),
      most_(most) {
  for (const TokenFile& file : files_) first_token_.push_back(first_token_.back() + file.count());
  if (pack == Pack::at_once)
    this->pack(std::pmr::get_default_resource());
  else
    figures_ = walk([](const Piece&, std::uint32_t) {}, [] {});
}

template <typename Use, typename End>
PackingFigures PackedSequences::walk(Use&& use, End&& end) const {
  PackingFigures figures;
  bool enough = false;
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const Documents& documents = documents_[f];
    for (std::uint64_t i = 0; i < documents.count() && !enough; ++i) {
      const std::uint64_t begin = documents.begin(i), document_end = documents.begin(i + 1),
                          length = document_end - begin;
      ++figures.documents;
      figures.longest = std::max(figures.longest, length);
      const bool is_long = length > seq_len_, left_out = is_long && longer_ != LongDocuments::cut;
      if (is_long) ++(left_out ? figures.dropped : figures.cut);
      for (std::uint64_t at = begin; at < document_end && !left_out; at += seq_len_) {
        const auto rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(seq_len_, document_end - at));
        const Piece piece{files_[f], &documents, i, at, document_end, first_token_[f] + at, rows};
        const std::uint32_t labels = labelling_->most(piece);
        if (labels == 0) {
          ++figures.without_label;
          continue;
        }
        ++figures.pieces;
        figures.rows += rows;
        figures.squares += static_cast<double>(rows) * static_cast<double>(rows);
        use(piece, labels);
      }
      if (figures.documents % kWindow != 0) continue;
      end();
      // A sequence has at most seq_len rows, so there are at least this many.
      enough = figures.rows / seq_len_ >= most_;
    }
  }
  if (figures.documents % kWindow != 0) end();
  if (longer_ == LongDocuments::refuse && figures.dropped > 0)
    fail(Exit::usage,
         "{} of {} {} longer than data.seq_len = {}, the longest of {} tokens: raise data.seq_len, or use "
         "data.long = \"cut\" or \"drop\"",
         figures.dropped, counted(figures.documents, "document"), for_count(figures.dropped, "is", "are"), seq_len_,
         figures.longest);
  return figures;
}

void PackedSequences::keep_in(std::pmr::memory_resource* memory) {
  if (!index_) {
    pack(memory);
  } else if (index_->begin.get_allocator().resource() != memory) {
    Index moved(*index_, memory);
    index_.emplace(std::move(moved));
  }
  keep_column_in(memory);
}

void PackedSequences::pack(std::pmr::memory_resource* memory) {
  Index& index = index_.emplace(memory);
  if (figures_.documents > 0) {  // reserved once at the promised size: planned memory is never freed
    index.begin.reserve(figures_.pieces);
    index.rows.reserve(figures_.pieces);
    index.first_piece.reserve(max_sequences(figures_, seq_len_) + 1);
    index.labels.reserve(max_sequences(figures_, seq_len_) + 1);
  } else if (most_ == kAllSequences) {  // reserved so that growing does not move it; unused pages take no memory
    std::uint64_t documents = 0;
    for (const Documents& of_file : documents_) documents += of_file.count();
    index.begin.reserve(documents);
    index.rows.reserve(documents);
  }
  index.first_piece.push_back(0);

  BestFit best_fit(seq_len_);
  struct Item {
    std::uint64_t begin;
    std::uint32_t rows, most, labels;
  };
  std::vector<Item> window;
  std::vector<std::uint32_t> lengths;
  // If all sequences are read, count labels now, in the order of the file.
  const bool counts_here = !labelling_->exact() && most_ == kAllSequences;
  figures_ = walk(
      [&](const Piece& piece, std::uint32_t most) {
        window.push_back({piece.place, piece.rows, most, counts_here ? labelling_->count(piece) : most});
      },
      [&] {
        lengths.clear();
        for (const Item& piece : window) lengths.push_back(piece.rows);
        const BestFit::Bins& bins = best_fit.pack(lengths);
        std::size_t at = 0;
        for (const std::uint32_t end : bins.ends) {
          std::uint32_t labels = 0, most = 0;
          for (; at < end; ++at) {
            const Item& piece = window[bins.items[at]];
            index.begin.push_back(piece.begin);
            index.rows.push_back(piece.rows);
            labels += piece.labels;
            most += piece.most;
          }
          index.first_piece.push_back(index.begin.size());
          index.labels.push_back(labels);
          max_labels_ = std::max<std::uint64_t>(max_labels_, most);
        }
        window.clear();
      });
  for (const TokenFile& file : files_) file.require_untruncated();
  if (figures_.pieces == 0) refuse_nothing();
  STRATA_CHECK_LE(size(), max_sequences(figures_, seq_len_));
  if (!labelling_->exact() && !counts_here) count_labels();
}

void PackedSequences::refuse_nothing() const {
  const std::string where =
      (files_.empty() ? "no file" : files_.front().path().string()) + (files_.size() > 1 ? " and the other files" : "");
  const std::uint64_t documents = figures_.documents, dropped = figures_.dropped;
  if (documents > 0 && dropped == documents)
    fail(Exit::usage,
         "{} in {} is longer than data.seq_len = {}, and data.long = \"drop\" leaves {} out: raise data.seq_len, or "
         "use data.long = \"cut\"",
         documents == 1 ? "the only document" : fmt::format("each of the {} documents", documents), where, seq_len_,
         documents == 1 ? "it" : "them all");
  fail(Exit::usage, "{} in {} has a label that counts{}, so there is nothing to learn",
       documents == 1 ? "no token of the only document" : fmt::format("none of the {} documents", documents), where,
       dropped == 0 ? ""
                    : fmt::format(" ({} of them {} longer than data.seq_len = {} and left out)", dropped,
                                  for_count(dropped, "is", "are"), seq_len_));
}

void PackedSequences::count_labels() {
  for (std::uint64_t sequence = 0; sequence < std::min(most_, size()); ++sequence) {
    std::uint32_t& labels = index_->labels[sequence] = 0;
    for (std::uint64_t p = index_->first_piece[sequence]; p < index_->first_piece[sequence + 1]; ++p)
      labels += labelling_->count(piece_of(p));
  }
}

Piece PackedSequences::piece_of(std::uint64_t piece) const {
  const auto after = std::upper_bound(first_token_.begin(), first_token_.end(), index_->begin[piece]);
  const auto f = static_cast<std::size_t>(after - first_token_.begin()) - 1;
  const std::uint64_t begin = index_->begin[piece] - first_token_[f], document = documents_[f].document_of(begin);
  return {files_[f],          &documents_[f], document, begin, documents_[f].begin(document + 1), index_->begin[piece],
          index_->rows[piece]};
}

void PackedSequences::fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const {
  std::uint32_t first = 0;
  for (std::uint64_t p = index_->first_piece[sequence]; p < index_->first_piece[sequence + 1]; ++p) {
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
  fill_without_document(rows.subrows(first, seq_len_ - first));
}

namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

NumberSet::NumberSet(std::uint64_t size) : size_(size) {
  do {
    size = (size + 63) / 64;
    levels_.emplace_back(size);
  } while (size > 1);
}

void NumberSet::insert(std::uint64_t x) {
  for (auto& level : levels_) {
    level[x / 64] |= std::uint64_t{1} << x % 64;
    x /= 64;
  }
}

void NumberSet::erase(std::uint64_t x) {
  for (auto& level : levels_) {
    level[x / 64] &= ~(std::uint64_t{1} << x % 64);
    if (level[x / 64] != 0) return;
    x /= 64;
  }
}

std::uint64_t NumberSet::next(std::uint64_t x) const {
  // Ascend to the first level with a number after x, then descend to the first number below it.
  for (std::size_t height = 0; height < levels_.size(); ++height) {
    if (x / 64 >= levels_[height].size()) return size_;
    const std::uint64_t word = levels_[height][x / 64] >> x % 64;
    if (word == 0) {
      x = x / 64 + 1;
      continue;
    }
    x += static_cast<std::uint64_t>(std::countr_zero(word));
    while (height > 0) x = x * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[--height][x]));
    return x;
  }
  return size_;
}

std::uint64_t NumberSet::last() const {
  if (levels_.back()[0] == 0) return size_;
  std::uint64_t x = 0;
  for (std::size_t height = levels_.size(); height-- > 0;)
    x = x * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero(levels_[height][x]));
  return x;
}

BestFit::BestFit(std::uint32_t capacity)
    : capacity_(capacity), spaces_(capacity + std::uint64_t{1}), newest_(capacity + 1, kNone) {}

// Returns the bin with the least sufficient space, or with the most space, for an item; among equals, the bin
// that changed last. Opens a new one if the item fits none.
std::uint32_t BestFit::take_bin(std::uint32_t length, bool emptiest) {
  const std::uint64_t most = emptiest ? spaces_.last() : 0;
  const std::uint64_t space = most >= length && most <= capacity_ ? most : spaces_.next(length);
  if (space > capacity_) {
    left_.push_back(capacity_);
    before_.push_back(kNone);
    return static_cast<std::uint32_t>(left_.size() - 1);
  }
  const std::uint32_t bin = newest_[space];
  newest_[space] = before_[bin];
  if (newest_[space] == kNone) spaces_.erase(space);
  return bin;
}

void BestFit::put_back(std::uint32_t bin) {
  const std::uint32_t space = left_[bin];
  if (space == 0) return;  // full: it is never searched for again
  before_[bin] = newest_[space];
  newest_[space] = bin;
  if (before_[bin] == kNone) spaces_.insert(space);
}

void BestFit::place(std::uint32_t first, std::uint64_t spread) {
  left_.assign(first, capacity_);
  before_.assign(first, kNone);
  for (std::uint32_t bin = first; bin-- > 0;) put_back(bin);  // the first one is taken first
  bin_of_.resize(order_.size());
  std::uint64_t placed = 0;
  for (std::size_t k = 0; k < order_.size(); ++k) {
    const std::uint32_t length = capacity_ - static_cast<std::uint32_t>(order_[k] >> 32);
    const std::uint32_t bin = bin_of_[k] = take_bin(length, placed < spread);
    left_[bin] -= length;
    put_back(bin);
    placed += length;
  }
  for (const std::uint32_t space : left_) {
    if (space == 0 || newest_[space] == kNone) continue;
    newest_[space] = kNone;
    spaces_.erase(space);
  }
}

const BestFit::Bins& BestFit::pack(std::span<const std::uint32_t> lengths) {
  STRATA_CHECK_LT(lengths.size(), std::size_t{kNone});
  order_.resize(lengths.size());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    STRATA_CHECK(lengths[i] > 0 && lengths[i] <= capacity_);
    order_[i] = std::uint64_t{capacity_ - lengths[i]} << 32 | i;
    total += lengths[i];
  }
  std::sort(order_.begin(), order_.end());
  place(0, 0);
  const std::size_t fewest = left_.size();
  std::swap(bin_of_, other_);
  place(static_cast<std::uint32_t>((total + capacity_ - 1) / capacity_), total - total / 4);
  if (left_.size() > fewest + fewest / 200) {
    std::swap(bin_of_, other_);
    left_.resize(fewest);
  }
  // Sorts items by bin, keeping their order within each.
  bins_.ends.assign(left_.size(), 0);
  for (const std::uint32_t bin : bin_of_) ++bins_.ends[bin];
  std::exclusive_scan(bins_.ends.begin(), bins_.ends.end(), bins_.ends.begin(), std::uint32_t{0});
  bins_.items.resize(lengths.size());
  for (std::size_t k = 0; k < order_.size(); ++k)
    bins_.items[bins_.ends[bin_of_[k]]++] = static_cast<std::uint32_t>(order_[k]);
  return bins_;
}

}  // namespace strata::runtime
