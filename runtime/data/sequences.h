#pragma once
#include <cstdint>
#include <span>

#include "device/row_range.h"
#include "runtime/data/tokens.h"

namespace strata::runtime {

// The rows of one sequence, or of several one behind the other: the columns of a batch.
struct Rows {
  std::span<std::uint32_t> tokens;
  std::span<std::int32_t> labels;  // device::kIgnoredLabel: does not count
  std::span<std::uint32_t> positions;
  std::span<device::RowRange> documents;

  Rows subrows(std::size_t begin, std::size_t count) const {
    return {tokens.subspan(begin, count), labels.subspan(begin, count), positions.subspan(begin, count),
            documents.subspan(begin, count)};
  }
};

struct PackingFigures;

// Sequences of one length, cut out of token files: what batches are made of. Their number, and how many labels count in
// each, is known without reading a token.
class Sequences {
 public:
  virtual ~Sequences() = default;

  virtual std::span<const TokenFile> files() const = 0;
  virtual std::uint64_t size() const = 0;
  // Of the sequence: labels that count.
  virtual std::uint64_t labels(std::uint64_t sequence) const = 0;
  // All rows of the sequence. Throws Error{corrupt} where a file was cut, or a token is outside the vocabulary.
  virtual void fill(std::uint64_t sequence, const Rows& rows) const = 0;
  // What packing found, if documents are packed; else null.
  virtual const PackingFigures* packing() const { return nullptr; }
};

}  // namespace strata::runtime
