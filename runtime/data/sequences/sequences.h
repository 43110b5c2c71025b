#pragma once
// runtime/data/sequences/ cuts token files into sequences (here): a stream, packed documents, or each once for an
// evaluation; a Labelling (labelling.h) says which of their rows a loss takes.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/labelling.h"

namespace strata::runtime {

struct PackingFigures;

// So many of the first sequences, if a run does not read all.
inline constexpr std::uint64_t kAllSequences = std::numeric_limits<std::uint64_t>::max();

// Sequences of one length, cut out of token files: what batches are made of. What is kept of them in memory moves into
// what a plan has for it (keep_in); only then are they read.
class Sequences {
 public:
  virtual ~Sequences() = default;

  std::span<const TokenFile> files() const { return files_; }
  // The labels that came with the files; null: there are none.
  const LabelColumn* column() const { return labelling_->column(); }
  // As TokenFile::limit_to(), of each file.
  void limit_to(std::int64_t vocab_size) {
    for (TokenFile& file : files_) file.limit_to(vocab_size);
  }
  // Bytes that keep_in() takes at most; makes or moves there what is kept. The resource outlives the sequences.
  virtual std::size_t index_bytes() const = 0;
  virtual void keep_in(std::pmr::memory_resource* memory) = 0;

  virtual std::uint64_t size() const = 0;
  // Of the sequence: labels that count, in every epoch. Reads no token.
  virtual std::uint64_t labels(std::uint64_t sequence) const = 0;
  // The most that any sequence has; it may be above that.
  virtual std::uint64_t most_labels() const = 0;
  // All rows of the sequence. Throws Error{corrupt} where a file was cut, or a token is outside the vocabulary.
  virtual void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const = 0;
  // What packing found, if documents are packed; else null.
  virtual const PackingFigures* packing() const { return nullptr; }

 protected:
  // labelling: the next token, if not given.
  Sequences(std::vector<TokenFile> files, std::shared_ptr<Labelling> labelling);

  // Of what the labelling keeps.
  std::size_t column_bytes() const { return column() ? column()->bytes() : 0; }
  void keep_column_in(std::pmr::memory_resource* memory) {
    if (LabelColumn* column = labelling_->column()) column->keep_in(memory);
  }

  std::vector<TokenFile> files_;
  std::shared_ptr<Labelling> labelling_;
};

}  // namespace strata::runtime
