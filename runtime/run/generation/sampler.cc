#include "runtime/run/generation/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/numeric/philox.h"

namespace strata::runtime {
namespace {

// Differs from the sites of dropout and of initial weights.
constexpr std::uint32_t kSite = 0x7fffffff;

// Uniform in [0, 1), with 53 bits.
double uniform(std::uint64_t seed, std::uint64_t n) {
  const device::PhiloxBlock block = device::random_block({seed, 0, kSite}, n);
  const std::uint64_t bits = static_cast<std::uint64_t>(block.word[0]) << 32 | block.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

Sampler::Sampler(double temperature, double top_p, std::uint64_t seed)
    : temperature_(temperature), top_p_(top_p), seed_(seed) {
  STRATA_CHECK(temperature >= 0 && top_p > 0 && top_p <= 1);
}

std::uint32_t Sampler::pick(std::span<const float> logits, std::uint64_t n) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature_ == 0) return static_cast<std::uint32_t>(largest - logits.begin());
  candidates_.resize(logits.size());
  double total = 0;
  for (std::uint32_t token = 0; token < logits.size(); ++token) {
    const double weight = std::exp((static_cast<double>(logits[token]) - static_cast<double>(*largest)) / temperature_);
    candidates_[token] = {weight, token};
    total += weight;
  }
  if (top_p_ < 1) {
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
    });
    const double wanted = top_p_ * total;
    std::size_t kept = 0;
    for (total = 0; kept < candidates_.size() && total < wanted; ++kept) total += candidates_[kept].weight;
    candidates_.resize(kept);
  }
  double left = uniform(seed_, n) * total;
  for (const Candidate& c : candidates_)
    if ((left -= c.weight) < 0) return c.token;
  return candidates_.back().token;  // reached only by rounding
}

}  // namespace strata::runtime
