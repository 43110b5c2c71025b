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
#include "runtime/data/sequences/labelling.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What packing found in its files. A piece is a document, or one of those that a long one was cut into.
struct PackingFigures {
  std::uint64_t documents = 0;  // all of them
  std::uint64_t pieces = 0, rows = 0;
  std::uint64_t cut = 0, dropped = 0;            // documents that were too long
  std::uint64_t without_label = 0, longest = 0;  // pieces left out, as no label of theirs counts; of documents, tokens
  double squares = 0;                            // of the pieces' lengths

  // Bytes for an index of the pieces at most, and the mean of a sequence's sum of squares if nothing is left over.
  std::size_t index_bytes(std::uint32_t seq_len) const;
  double mean_squares(std::uint32_t seq_len) const;
  PackingFigures& operator+=(const PackingFigures& other);
};

// Whole documents that share sequences of seq_len rows without seeing each other (docs/formats.md, "Packing"): packed
// once; then an index of sequences is kept.
class PackedSequences final : public Sequences {
 public:
  // When documents are packed: once the index has its memory, of which the plan knows the size; or at once, if the plan
  // has to know most_labels(), too.
  enum class Pack : std::uint8_t { in_its_memory, at_once };
  // most: of the sequences that are read; no window of documents (docs/formats.md, "Packing") behind them is looked at.
  // Throws Error{usage} if documents are too long and `longer` refuses them, and, packing, if no label counts.
  PackedSequences(std::vector<TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                  std::shared_ptr<Labelling> labelling, Pack pack, std::uint64_t most = kAllSequences);
  // Packed, in memory of the process.
  PackedSequences(std::vector<TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                  std::shared_ptr<Labelling> labelling = {});

  std::size_t index_bytes() const override { return figures_.index_bytes(seq_len_) + column_bytes(); }
  void keep_in(std::pmr::memory_resource* memory) override;

  std::uint64_t size() const override { return index_->labels.size(); }
  std::uint64_t labels(std::uint64_t sequence) const override { return index_->labels[sequence]; }
  std::uint64_t most_labels() const override { return most_labels_; }
  void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const override;

  const PackingFigures* packing() const override { return &figures_; }
  const PackingFigures& figures() const { return figures_; }
  // Of the sequence: its documents, or pieces of some.
  std::uint64_t pieces(std::uint64_t sequence) const {
    return index_->first_piece[sequence + 1] - index_->first_piece[sequence];
  }

 private:
  // By piece: its first token among those of all files, and its rows. By sequence: where its pieces begin, and how many
  // of its labels count.
  struct Index {
    explicit Index(std::pmr::memory_resource* memory)
        : begin(memory), first_piece(memory), rows(memory), labels(memory) {}
    // Leaves nothing in `other`: each column's memory goes as soon as it is copied.
    Index(Index& other, std::pmr::memory_resource* memory);

    std::pmr::vector<std::uint64_t> begin, first_piece;
    std::pmr::vector<std::uint32_t> rows, labels;
  };
  // use(piece, labels at most) of each piece that is packed, in file order, end() behind each window of documents.
  template <typename Use, typename End>
  PackingFigures walk(Use&& use, End&& end) const;
  void pack(std::pmr::memory_resource* memory);
  // Of files of which no piece is packed.
  [[noreturn]] void refuse_nothing() const;
  // Of sequences that are counted once they are known.
  void count_labels();
  Piece piece_of(std::uint64_t piece) const;

  std::vector<Documents> documents_;        // of each file
  std::vector<std::uint64_t> first_token_;  // of each file among all, and their number
  std::uint32_t seq_len_;
  LongDocuments longer_;
  std::uint64_t most_;
  PackingFigures figures_;
  std::optional<Index> index_;  // once they are packed
  std::uint64_t most_labels_ = 0;
};

}  // namespace strata::runtime
