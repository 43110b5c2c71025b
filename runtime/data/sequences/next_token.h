#pragma once
#include "runtime/data/sequences/labelling.h"

namespace strata::runtime {

// Causal language modelling: a row's label is the document's next token, if that counts.
class NextToken final : public Labelling {
 public:
  std::uint32_t most(const Piece& piece) const override;
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;
};

}  // namespace strata::runtime
