#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/run/evaluator.h"
#include "runtime/run/generation/answers.h"
#include "runtime/run/trainer.h"

namespace strata::runtime {

// What is best after an evaluation of `step` whose metric is `value`; nullopt: it has none, and is no better than those
// before. nullopt is also what is best of none that had a value.
std::optional<Best> best_after(const std::optional<Best>& before, std::int64_t step, std::optional<double> value,
                               bool greater);

// How many evaluations in a row were no better than one before; of a run in which none has had a value yet, all of the
// `without_value` ones, which are no better than nothing.
std::int64_t evaluations_in_vain(const std::optional<Best>& best, std::int64_t without_value);

// Evaluates a training between its steps, as its recipe says (evaluation.*): over the weights where they are and in the
// memory that a step leaves free, with the bits that `strata eval` has of a checkpoint of that step. Changes no bit of
// the training. Every rank has one; job, world and trainer outlive it.
class PeriodicEvaluation {
 public:
  // `job` has an evaluation; prompts: those that it answers, if it has a generation, too. Collective.
  PeriodicEvaluation(const Job& job, comm::World& world, Trainer& trainer, std::optional<Prompts> prompts = {});

  // Whether one is due now, between two steps, and has not been made yet.
  bool due() const;
  // Drains the training, evaluates, answers the prompts, and keeps in the training's progress what is best; after_token
  // is called after each token of an answer. nullopt: it was stopped. Collective.
  std::optional<EvaluationReport> run(
      const Evaluator::AfterRound& after_round, const std::function<void()>& after_token = [] {});
  // Whether evaluation.patience is used up: the run is to end here.
  bool out_of_patience() const;
  // What counts against it. While no evaluation had a value, those before a resume are forgotten.
  std::int64_t in_vain() const { return evaluations_in_vain(trainer_.progress().best, without_value_); }

  // What evaluations took at most, and what they have sent to other ranks.
  Memory measured_memory() const;
  const comm::CommBytes& comm_bytes() const { return sent_; }

 private:
  const Recipe::Evaluation& recipe_;
  Trainer& trainer_;
  Evaluator evaluator_;
  std::optional<Answers> answers_;
  comm::CommBytes sent_{};
  std::int64_t without_value_ = 0;  // evaluations of this run, while none has had one
};

}  // namespace strata::runtime
