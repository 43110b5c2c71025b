#include "runtime/run/generation/generator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

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

}  // namespace strata::runtime
