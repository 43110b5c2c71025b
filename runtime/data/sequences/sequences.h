#pragma once
// runtime/data/sequences/ cuts token files into sequences (here): a stream, packed documents, or each once for an
// evaluation. A Labelling says which of their rows enter the loss.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/error.h"
#include "models/batch.h"
#include "runtime/data/files/documents.h"
#include "runtime/data/files/labels.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

using Rows = models::BatchRows;

// The rows of one document in one sequence: all of it, or a part if it was cut.
struct Piece {
  const TokenFile& file;
  const Documents* documents;         // the file's; null: each sequence counts as one document
  std::uint64_t document;             // the document's number in the file
  std::uint64_t begin, document_end;  // the piece's first token in the file, and the end of the document
  std::uint64_t place;                // the number of that first token, counted over all of the source's files
  std::uint32_t rows;

  // True if the file's token counts as a label.
  bool counts(std::uint64_t token) const { return !documents || documents->counts(token); }
};

// Determines which rows of a piece enter the loss, and their targets, for one objective. A pure function of its
// arguments, so the same on every rank.
class Labelling {
 public:
  virtual ~Labelling() = default;

  // The maximum number of rows that enter the loss. Reads no token of a stream's piece. 0: the piece is left out.
  virtual std::uint32_t most(const Piece& piece) const = 0;
  // True if most() is the exact number.
  virtual bool exact() const { return true; }
  // The exact number. It may read all tokens of the piece, so it is called once, at opening.
  virtual std::uint32_t count(const Piece& piece) const { return most(piece); }
  // The labels that came with the files; null: they are made from tokens.
  virtual LabelColumn* column() { return nullptr; }
  // Writes the labels of the piece's rows (`own`), reads their tokens, and may change them. `epoch`: the number
  // of complete passes over the source before this one.
  virtual void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const = 0;
};

// Makes the labelling of a source's files. `stream` distinguishes sources, so that no two use the same random numbers.
using MakeLabelling = std::function<std::shared_ptr<Labelling>(std::span<const TokenFile> files, std::uint64_t stream)>;
// The stream of validation data.
inline constexpr std::uint64_t kValidationStream = ~std::uint64_t{0};

// Writes the sets to which a sequence's labels refer, one after another, to the front of `to`, and returns the rest
// of `to`. Does nothing if the column (nullable) has no sets.
std::span<std::uint32_t> write_class_sets(const LabelColumn* column, std::span<const std::int32_t> labels,
                                          std::span<std::uint32_t> to);
// Makes rows that no document has: token 0 and labels that do not count.
void fill_without_document(const Rows& rows);
// Moves the rows with labels to the front of the columns: loss_rows[j] is the row of labels[j]. Does nothing if the
// micro-batch has no such column.
void take_labelled(const Rows& rows);

struct PackingFigures;

// All sequences, as a limit on the number that a run reads.
inline constexpr std::uint64_t kAllSequences = std::numeric_limits<std::uint64_t>::max();

// Sequences of one length, cut out of token files. Batches consist of them. Before they are read, keep_in() must move
// their index and labels to the plan's memory.
class Sequences {
 public:
  virtual ~Sequences() = default;

  std::span<const TokenFile> files() const { return files_; }
  // The labels that came with the files; null: there are none.
  const LabelColumn* column() const { return labelling_->column(); }
  // Calls TokenFile::limit_to() for each file.
  void limit_to(std::int64_t vocab_size) {
    for (TokenFile& file : files_) file.limit_to(vocab_size);
  }
  // The maximum number of bytes that keep_in() takes from `memory`, in which it builds the index and keeps the labels.
  // `memory` must outlive the sequences.
  virtual std::size_t index_bytes() const = 0;
  virtual void keep_in(std::pmr::memory_resource* memory) = 0;

  virtual std::uint64_t size() const = 0;
  // The number of labels that count in the sequence, in every epoch. Reads no token.
  virtual std::uint64_t labels(std::uint64_t sequence) const = 0;
  // An upper bound on the labels of any sequence.
  virtual std::uint64_t max_labels() const = 0;
  // Fills all rows of the sequence. Throws Error{corrupt} if a file has been truncated, or a token is outside the
  // vocabulary.
  virtual void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const = 0;
  // The figures of packing, if documents are packed; otherwise null.
  virtual const PackingFigures* packing() const { return nullptr; }

 protected:
  // labelling: the next token, if not given.
  Sequences(std::vector<TokenFile> files, std::shared_ptr<Labelling> labelling);

  // The memory of the labelling's label column, and where it is kept.
  std::size_t column_bytes() const { return column() ? column()->bytes() : 0; }
  void keep_column_in(std::pmr::memory_resource* memory) {
    if (LabelColumn* column = labelling_->column()) column->keep_in(memory);
  }

  std::vector<TokenFile> files_;
  std::shared_ptr<Labelling> labelling_;
};

// Fills a micro-batch of `count` sequences of `seq_len` rows. fill(b, own) fills the rows of sequence b, and returns
// the column that its labels came from (Sequences::column); null: there is none.
template <typename Fill>
void fill_micro_batch(const Rows& rows, std::uint64_t count, std::uint64_t seq_len, Fill&& fill) {
  for (const std::size_t size : {rows.tokens.size(), rows.labels.size(), rows.positions.size(), rows.documents.size()})
    STRATA_CHECK_EQ(size, count * seq_len);
  std::span<std::uint32_t> sets = rows.class_sets;
  for (std::uint64_t b = 0; b < count; ++b) {
    const Rows own = rows.subrows(b * seq_len, seq_len);
    const LabelColumn* const column = fill(b, own);
    sets = write_class_sets(column, own.labels, sets);
  }
  models::place_padding(rows);
  take_labelled(rows);
}

}  // namespace strata::runtime
