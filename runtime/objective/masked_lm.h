#pragma once
#include <cstdint>
#include <vector>

#include "runtime/objective/rules.h"

namespace strata::runtime {

// Which tokens are selected, and what they become. This is part of the numerics contract and must never change
// (docs/formats.md, "Masked tokens").
class MaskedTokens final : public Labelling {
 public:
  struct Vocabulary {
    std::uint32_t mask;   // the mask token
    std::uint32_t words;  // random tokens are below it
    std::vector<bool> special;
  };
  MaskedTokens(Vocabulary vocabulary, double probability, std::uint64_t seed, std::uint64_t stream);

  std::uint32_t most(const Piece& piece) const override;
  bool exact() const override { return false; }
  std::uint32_t count(const Piece& piece) const override;
  void fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const override;

 private:
  bool may_be_chosen(const Piece& piece, std::uint32_t row, std::uint32_t token) const;
  bool has_words(const Piece& piece) const;

  Vocabulary vocabulary_;
  std::vector<TokenRange> special_;  // the same as a few ranges
  double probability_;
  std::uint64_t key_;
};

}  // namespace strata::runtime
