#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "models/batch.h"
#include "runtime/data/files/documents.h"
#include "runtime/data/files/label_column.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

using Rows = models::BatchRows;

// The rows of one document in one sequence: all of it, or a part if it was cut.
struct Piece {
  const TokenFile& file;
  const Documents* documents;         // the file's; null: each sequence counts as one document
  std::uint64_t document;             // its number in the file
  std::uint64_t begin, document_end;  // the piece's first token in the file, and the one after the document's last
  std::uint64_t place;                // the number of that first token among those of all of the source's files
  std::uint32_t rows;

  // Whether the file's token counts as a label.
  bool counts(std::uint64_t token) const { return !documents || documents->counts(token); }
};

// Which rows of a piece enter the loss, and their targets: what an objective makes of tokens. A pure function of its
// arguments, so the same on every rank.
class Labelling {
 public:
  virtual ~Labelling() = default;

  // The most rows that enter the loss; known without reading a token of a stream's piece. 0: the piece is left out.
  virtual std::uint32_t most(const Piece& piece) const = 0;
  // Whether most() is the exact number.
  virtual bool exact() const { return true; }
  // The exact number. It may read all tokens of the piece, so it is called once, at opening.
  virtual std::uint32_t count(const Piece& piece) const { return most(piece); }
  // The labels that came with the files; null: they are made from tokens.
  virtual LabelColumn* column() { return nullptr; }
  // Writes the labels of the piece's rows (`own`), reads their tokens, and may change them. `epoch`: how often the
  // source has been passed over before.
  virtual void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const = 0;
};

// Makes the labelling of a source's files. `stream` distinguishes sources, so that no two use the same random numbers.
using MakeLabelling = std::function<std::shared_ptr<Labelling>(std::span<const TokenFile> files, std::uint64_t stream)>;
// The stream of validation data.
inline constexpr std::uint64_t kValidationStream = ~std::uint64_t{0};

// Writes the sets that a sequence's labels number, one after the other, to the front of `to`, and returns the rest of
// it. Does nothing if the column (nullable) has no sets.
std::span<std::uint32_t> write_class_sets(const LabelColumn* column, std::span<const std::int32_t> labels,
                                          std::span<std::uint32_t> to);
// Makes rows that no document has: token 0 and labels that do not count.
void fill_without_document(const Rows& rows);
// Moves the rows with labels to the front of the columns: loss_rows[j] is the row of labels[j]. Does nothing if the
// micro-batch has no such column.
void take_labelled(const Rows& rows);

}  // namespace strata::runtime
