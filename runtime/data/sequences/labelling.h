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

// Rows of one document in one sequence: all of it, or a part of one that was cut.
struct Piece {
  const TokenFile& file;
  const Documents* documents;         // of the file; null: nobody says where they begin, and each sequence is one
  std::uint64_t document;             // its number in the file
  std::uint64_t begin, document_end;  // the piece's first token in the file, and the one behind the document's last
  std::uint64_t place;                // that first token's number among those of all files of the source
  std::uint32_t rows;

  // Whether the file's token counts as a label.
  bool counts(std::uint64_t token) const { return !documents || documents->counts(token); }
};

// Which rows of a piece the loss takes, and what it wants there: what an objective makes of tokens. A pure function of
// what it is given: the same on every rank.
class Labelling {
 public:
  virtual ~Labelling() = default;

  // The rows that the loss takes, at most; of a stream's piece known without reading a token. 0: the piece is left out.
  virtual std::uint32_t most(const Piece& piece) const = 0;
  // Whether that is their number.
  virtual bool exact() const { return true; }
  // Their number. May read all tokens of the piece, so it is asked for once, at opening.
  virtual std::uint32_t count(const Piece& piece) const { return most(piece); }
  // The labels that came with the files; null: it makes them of tokens.
  virtual LabelColumn* column() { return nullptr; }
  // own: the piece's rows, of which tokens are read: writes labels, and may change tokens. epoch: how often the source
  // was gone over before.
  virtual void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const = 0;
};

// Makes the labelling of a source's files. stream: tells sources apart, so that no two draw the same random numbers.
using MakeLabelling = std::function<std::shared_ptr<Labelling>(std::span<const TokenFile> files, std::uint64_t stream)>;
// That of validation data.
inline constexpr std::uint64_t kValidationStream = ~std::uint64_t{0};

// Moves what is to be learned to the front of the columns: loss_rows[j] is the row of labels[j]. No-op if the
// micro-batch has no such column.
void take_labelled(const Rows& rows);

}  // namespace strata::runtime
