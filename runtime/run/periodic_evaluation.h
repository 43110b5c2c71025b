#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "runtime/run/evaluator.h"
#include "runtime/run/generation/generator.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/trainer.h"

namespace strata::runtime {

// The best evaluation so far, once the evaluation at `step` has this `value` of the metric. A value of nullopt is no
// better than earlier ones. Returns nullopt if no evaluation had a value.
std::optional<Best> best_after(const std::optional<Best>& before, std::int64_t step, std::optional<double> value,
                               bool greater);

// The number of consecutive evaluations, up to the newest, that were no better than an earlier one. If none has had a
// value yet, all `without_value` evaluations count.
std::int64_t evaluations_without_improvement(const std::optional<Best>& best, std::int64_t without_value);

// Answers prompts with the weights that a training run has between two steps. Takes the likeliest token each time, up
// to kAnswerTokens tokens or a token that ends the answer. Every rank has one; job, world and training must outlive it.
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

// Evaluates a training run between its steps, as evaluation.* in its recipe says: with the weights where they are, and
// in the memory that a step leaves free. The results have the same bits as `strata eval` on a checkpoint of that step,
// and no bit of the run changes. Every rank has one; job, world and trainer must outlive it.
class PeriodicEvaluation {
 public:
  // `job` must have an evaluation. prompts: to be answered, if `job` also has a generation. Collective.
  PeriodicEvaluation(const Job& job, comm::World& world, Trainer& trainer, std::optional<Prompts> prompts = {});

  // True if an evaluation is due now, between two steps, and has not been made yet.
  bool due() const;
  // Drains the run, evaluates, answers the prompts, and records the best result in the run's progress. after_token is
  // called after each token of an answer. nullopt if it was stopped. Collective.
  std::optional<EvaluationReport> run(
      const Evaluator::AfterRound& after_round, const std::function<void()>& after_token = [] {});
  // True if evaluation.patience is used up and the run must end here.
  bool patience_exhausted() const;
  // The evaluations that count against patience. Until one has a value, those of an earlier run do not count.
  std::int64_t without_improvement() const {
    return evaluations_without_improvement(trainer_.progress().best, without_value_);
  }

  // The peak memory of evaluations, and the bytes that they have sent to other ranks.
  Memory measured_memory() const;
  const comm::CommBytes& comm_bytes() const { return sent_; }

 private:
  const Recipe::Evaluation& recipe_;
  Trainer& trainer_;
  Evaluator evaluator_;
  std::optional<Answers> answers_;
  comm::CommBytes sent_{};
  std::int64_t without_value_ = 0;  // evaluations of this run, as long as none has had a value
};

}  // namespace strata::runtime
