#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/files/documents.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// A set of numbers in [0, size): insert, erase, and the smallest number from x on. Each operation touches a few words.
class NumberSet {
 public:
  explicit NumberSet(std::uint64_t size);
  void insert(std::uint64_t x);
  void erase(std::uint64_t x);
  // `size` if there is none.
  std::uint64_t next(std::uint64_t x) const;
  // The largest number; `size` if the set is empty.
  std::uint64_t last() const;

 private:
  std::uint64_t size_;
  std::vector<std::vector<std::uint64_t>> levels_;  // a bit for each number; then one for each word below
};

// Packs items into bins of one size. Part of the numerics contract: which items share a bin must never change.
//
// Best fit, decreasing (Johnson 1974): the longest item comes first, and equal ones come in the given order. Each goes
// into the bin with the least sufficient space, and of equal ones into the bin that changed last. This leaves almost no
// space unused, but fills each bin with items of similar length from neighbouring places in the file: a training step
// of a few such sequences is a poor sample of the data (docs/decisions/11-long-documents-are-spread.md). So the longest
// items, with three quarters of the total length, are spread first: each goes into the bin with the most space, over as
// few bins as could hold all of them. The others follow by best fit. If that needs more than 1 extra bin per 200, only
// best fit is used.
class BestFit {
 public:
  explicit BestFit(std::uint32_t capacity);

  struct Bins {
    std::vector<std::uint32_t> items;  // bin by bin: indices into `lengths`
    std::vector<std::uint32_t> ends;   // per bin: its end in `items`
  };
  // lengths: from 1 to `capacity`. Valid until the next call.
  const Bins& pack(std::span<const std::uint32_t> lengths);

 private:
  std::uint32_t take_bin(std::uint32_t length, bool emptiest);
  void put_back(std::uint32_t bin);
  // Puts the sorted items into bins; the longest items, up to `spread` units of length in total, go to the emptiest of
  // the `first` bins.
  void place(std::uint32_t first, std::uint64_t spread);

  std::uint32_t capacity_;
  NumberSet spaces_;                   // the space left in each bin
  std::vector<std::uint32_t> newest_;  // per space: the bin that reached it last
  // Per bin: the bin that reached the same space before it, and the space left.
  std::vector<std::uint32_t> before_, left_;
  std::vector<std::uint64_t> order_;
  std::vector<std::uint32_t> bin_of_, other_;
  Bins bins_;
};

// The figures of packing a source's files. A piece is a document, or a part of a long document that was cut.
struct PackingFigures {
  std::uint64_t documents = 0;  // all documents
  std::uint64_t pieces = 0, rows = 0;
  std::uint64_t cut = 0, dropped = 0;  // documents that were too long
  std::uint64_t without_label = 0,
                longest = 0;  // pieces left out because none of their labels count; the longest document, in tokens
  double squares = 0;         // the sum of squares of the pieces' lengths

  // The maximum size of an index of the pieces in bytes; and the mean sum of squares per sequence if no position were
  // unused.
  std::size_t index_bytes(std::uint32_t seq_len) const;
  double mean_squares(std::uint32_t seq_len) const;
  PackingFigures& operator+=(const PackingFigures& other);
};

// Complete documents that share sequences of seq_len rows but do not attend to each other (docs/formats.md, "Packing").
// They are packed once, into an index of sequences.
class PackedSequences final : public Sequences {
 public:
  // When documents are packed: once the index has its memory from the plan, or immediately, in the process's own
  // memory, if the plan also needs max_labels().
  enum class Pack : std::uint8_t { in_its_memory, at_once };
  // `most`: the number of sequences that are read; windows of documents (docs/formats.md, "Packing") after them are not
  // read. Throws Error{usage} if documents are too long and `longer` refuses them, or if packing finds no label that
  // counts.
  PackedSequences(std::vector<TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                  std::shared_ptr<Labelling> labelling, Pack pack, std::uint64_t most = kAllSequences);

  std::size_t index_bytes() const override { return figures_.index_bytes(seq_len_) + column_bytes(); }
  void keep_in(std::pmr::memory_resource* memory) override;

  std::uint64_t size() const override { return index_->labels.size(); }
  std::uint64_t labels(std::uint64_t sequence) const override { return index_->labels[sequence]; }
  std::uint64_t max_labels() const override { return max_labels_; }
  void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const override;

  const PackingFigures* packing() const override { return &figures_; }

 private:
  // Per piece: the number of its first token, counted over all files, and its rows. Per sequence: where its pieces
  // begin, and how many of its labels count.
  struct Index {
    explicit Index(std::pmr::memory_resource* memory)
        : begin(memory), first_piece(memory), rows(memory), labels(memory) {}
    // Leaves nothing in `other`: each column's memory is freed as soon as it is copied.
    Index(Index& other, std::pmr::memory_resource* memory);

    std::pmr::vector<std::uint64_t> begin, first_piece;
    std::pmr::vector<std::uint32_t> rows, labels;
  };
  // Calls use(piece, most labels) for each packed piece, in file order, and end() after each window of documents.
  template <typename Use, typename End>
  PackingFigures walk(Use&& use, End&& end) const;
  void pack(std::pmr::memory_resource* memory);
  // Throws the error for files of which no piece is packed.
  [[noreturn]] void refuse_nothing() const;
  // Counts labels after packing, for sequences whose labels were not counted before.
  void count_labels();
  Piece piece_of(std::uint64_t piece) const;

  std::vector<Documents> documents_;        // one per file
  std::vector<std::uint64_t> first_token_;  // the start of each file among all, and their total
  std::uint32_t seq_len_;
  LongDocuments longer_;
  std::uint64_t most_;
  PackingFigures figures_;
  std::optional<Index> index_;  // set once they are packed
  std::uint64_t max_labels_ = 0;
};

}  // namespace strata::runtime
