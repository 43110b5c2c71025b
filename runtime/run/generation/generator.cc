#include "runtime/run/generation/generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "device/numeric/philox.h"

namespace strata::runtime {

Generator::Generator(const Job& job, comm::World& world, int threads, const WeightSource& weights,
                     std::shared_ptr<const device::AlgorithmTable> algorithms)
    : job_(job),
      executor_(std::make_unique<Executor>(job.plan, *job.model, world, device::Optimizer{}, threads,
                                           job.recipe.io_options())) {
  executor_->use_algorithms(std::move(algorithms));
  load_same_weights(*executor_, *job.model, job.plan, weights, threads, world);
}

Generator::Generator(const Job& job, Executor& training)
    : job_(job), executor_(std::make_unique<Executor>(job.plan, *job.model, training)) {}

void Generator::restart() {
  executor_->refill();
  length_ = 0;
}

std::span<const float> Generator::append(std::span<const std::uint32_t> tokens) {
  STRATA_CHECK(!tokens.empty());
  STRATA_CHECK_LE(length_ + tokens.size(), capacity());
  const models::BatchRows batch = executor_->batch(0);
  std::span<const float> logits;
  while (!tokens.empty()) {
    const std::size_t rows = std::min(tokens.size(), batch.tokens.size());
    // Further rows are computed and discarded; their tokens and positions only have to be in range.
    std::fill(batch.tokens.begin(), batch.tokens.end(), 0u);
    std::fill(batch.positions.begin(), batch.positions.end(), 0u);
    for (std::size_t i = 0; i < rows; ++i) {
      STRATA_CHECK_LT(tokens[i], job_.model->vocabulary);
      batch.tokens[i] = tokens[i];
      batch.positions[i] = static_cast<std::uint32_t>(length_ + i);
    }
    logits = executor_->generate(length_, rows);
    length_ += rows;
    tokens = tokens.subspan(rows);
  }
  return logits;
}

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
