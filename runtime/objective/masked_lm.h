#pragma once
#include <cstdint>
#include <vector>

#include "runtime/objective/rules.h"

namespace strata::runtime {

// Masked language modelling (Devlin et al. 2018): of each document max(1, round(p n)) of the n tokens that may be
// chosen are predicted, those with the smallest random numbers of seed, epoch and place; of them 80% are masked, 10%
// become a random token, and 10% stay. Special tokens, and those that a mask of the data leaves out, are never chosen.
extern const ObjectiveRules kMaskedLm;

// How tokens are drawn, and what they become. Part of the numerics contract: it must never change (docs/formats.md,
// "Masked tokens").
class MaskedTokens final : public Labelling {
 public:
  struct Vocabulary {
    std::uint32_t mask;   // the token that stands for a masked one
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
  std::vector<TokenRange> special_;  // the same as few ranges
  double probability_;
  std::uint64_t key_;
};

}  // namespace strata::runtime
