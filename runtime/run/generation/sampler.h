#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata::runtime {

// Chooses the next token from logits. Temperature 0: the largest logit, the first if several are equal. Otherwise at
// random by softmax(logits / temperature), restricted to the most likely tokens whose probabilities add up to top_p
// (nucleus sampling, Holtzman et al. 2020). The random number of the n-th token is Philox's for (seed, n): the same on
// all ranks and independent of earlier draws.
class Sampler {
 public:
  // temperature >= 0, 0 < top_p <= 1.
  Sampler(double temperature, double top_p, std::uint64_t seed);

  std::uint32_t pick(std::span<const float> logits, std::uint64_t n);

 private:
  double temperature_, top_p_;
  std::uint64_t seed_;
  struct Candidate {
    double weight;
    std::uint32_t token;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace strata::runtime
