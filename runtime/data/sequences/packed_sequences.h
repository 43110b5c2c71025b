#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
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

// Counts what there is to pack. Throws Error{usage} where documents are too long and `longer` refuses them.
PackingFigures look_at_documents(std::span<const TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                                 const Labelling& labelling);

// Whole documents that share sequences of seq_len rows without seeing each other (docs/formats.md, "Packing"): packed
// once, here; then an index of sequences is kept, in `memory`.
class PackedSequences final : public Sequences {
 public:
  // Throws as look_at_documents(), and Error{usage} where no label counts. labelling: the next token, if not given.
  PackedSequences(std::vector<TokenFile> files, std::uint32_t seq_len, LongDocuments longer,
                  std::pmr::memory_resource* memory = std::pmr::get_default_resource(),
                  std::shared_ptr<const Labelling> labelling = {});

  std::span<const TokenFile> files() const override { return files_; }
  std::uint64_t size() const override { return labels_.size(); }
  std::uint64_t labels(std::uint64_t sequence) const override;
  std::uint64_t most_labels() const override;
  void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const override;

  const PackingFigures* packing() const override { return &figures_; }
  const PackingFigures& figures() const { return figures_; }
  // Of the sequence: its documents, or pieces of some.
  std::uint64_t pieces(std::uint64_t sequence) const { return first_piece_[sequence + 1] - first_piece_[sequence]; }

 private:
  Piece piece_of(std::uint64_t piece) const;

  std::vector<TokenFile> files_;
  std::vector<Documents> documents_;        // of each file
  std::vector<std::uint64_t> first_token_;  // of each file among all, and their number
  std::uint32_t seq_len_;
  std::shared_ptr<const Labelling> labelling_;
  PackingFigures figures_;
  // By piece: its first token among those of all files, and its rows. By sequence: where its pieces begin, and how many
  // of its labels count at most.
  std::pmr::vector<std::uint64_t> begin_, first_piece_;
  std::pmr::vector<std::uint32_t> rows_, labels_;
};

}  // namespace strata::runtime
