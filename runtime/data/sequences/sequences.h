#pragma once
// runtime/data/sequences/ cuts token files into sequences (here): a stream, packed documents, or each once for an
// evaluation. A Labelling (labelling.h) says which of their rows enter the loss.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/labelling.h"

namespace strata::runtime {

struct PackingFigures;

// All sequences, as a limit on the number that a run reads.
inline constexpr std::uint64_t kAllSequences = std::numeric_limits<std::uint64_t>::max();

// Sequences of one length, cut out of token files; batches consist of them. keep_in() must move what they keep to the
// plan's memory before they are read.
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
  // The most bytes that keep_in() takes, which builds or moves there what is kept. `memory` must outlive the sequences.
  virtual std::size_t index_bytes() const = 0;
  virtual void keep_in(std::pmr::memory_resource* memory) = 0;

  virtual std::uint64_t size() const = 0;
  // The number of labels that count in the sequence, in every epoch. Reads no token.
  virtual std::uint64_t labels(std::uint64_t sequence) const = 0;
  // An upper bound on the labels of any sequence.
  virtual std::uint64_t most_labels() const = 0;
  // Fills all rows of the sequence. Throws Error{corrupt} if a file has been truncated, or a token is outside the
  // vocabulary.
  virtual void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const = 0;
  // What packing found, if documents are packed; otherwise null.
  virtual const PackingFigures* packing() const { return nullptr; }

 protected:
  // labelling: the next token, if not given.
  Sequences(std::vector<TokenFile> files, std::shared_ptr<Labelling> labelling);

  // For what the labelling keeps.
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
