#pragma once
// runtime/data/sequences/ cuts token files into sequences (here): a stream, packed documents, or each once for an
// evaluation; a Labelling (labelling.h) says which of their rows a loss takes.
#include <cstdint>
#include <span>

#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/labelling.h"

namespace strata::runtime {

struct PackingFigures;

// Sequences of one length, cut out of token files: what batches are made of.
class Sequences {
 public:
  virtual ~Sequences() = default;

  virtual std::span<const TokenFile> files() const = 0;
  virtual std::uint64_t size() const = 0;
  // Of the sequence: labels that count, in every epoch. May read its tokens (Labelling::exact).
  virtual std::uint64_t labels(std::uint64_t sequence) const = 0;
  // The most that any sequence has; it may be above that.
  virtual std::uint64_t most_labels() const = 0;
  // All rows of the sequence. Throws Error{corrupt} where a file was cut, or a token is outside the vocabulary.
  virtual void fill(std::uint64_t sequence, std::uint64_t epoch, const Rows& rows) const = 0;
  // What packing found, if documents are packed; else null.
  virtual const PackingFigures* packing() const { return nullptr; }
};

}  // namespace strata::runtime
