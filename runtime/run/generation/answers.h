#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/run/generation/generator.h"
#include "runtime/run/generation/prompts.h"
#include "runtime/run/reports/report.h"

namespace strata::runtime {

// Answers prompts with the weights that a training has between two of its steps. Takes the likeliest token each time,
// up to kAnswerTokens tokens or a token that ends the answer. Every rank has one; job, world and training must outlive
// it.
inline constexpr std::size_t kAnswerTokens = 64;
class Answers {
 public:
  // `job` must have a generation.
  Answers(const Job& job, comm::World& world, Executor& training, Prompts prompts);

  // Call it after a drain; after_token is called after each token. Collective; the result is the same on all ranks.
  std::vector<Answer> run(const std::function<void()>& after_token = [] {});
  const Memory& measured_memory() const { return generator_.executor().measured_memory(); }

 private:
  Answer answer(const Prompts::Prompt& prompt, const std::function<void()>& after_token);
  // The likeliest token after these logits, which only ranks of the last stage have.
  std::uint32_t next(std::span<const float> logits);

  comm::World& world_;
  Mesh mesh_;
  Prompts prompts_;
  Generator generator_;
};

}  // namespace strata::runtime
