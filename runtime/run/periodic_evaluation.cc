#include "runtime/run/periodic_evaluation.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "runtime/run/report.h"

namespace strata::runtime {

std::string evaluation_line(const EvaluationReport& report) {
  const Evaluation& e = report.result;
  return fmt::format(
      "{{\"step\":{},\"eval_loss\":{},\"eval_loss_hex\":\"{:a}\",\"eval_perplexity\":{},\"eval_tokens\":{},"
      "\"eval_sequences\":{},\"eval_tokens_per_s\":{:.1f},\"best\":{}}}\n",
      report.step, json_number(e.loss), e.loss, json_number(e.perplexity), e.labels, e.sequences, e.tokens_per_s,
      report.best);
}

PeriodicEvaluation::PeriodicEvaluation(const Job& job, comm::World& world, Trainer& trainer)
    : recipe_(job.recipe.evaluation),
      trainer_(trainer),
      evaluator_(*job.evaluation, world, trainer.executor()) {}

bool PeriodicEvaluation::due() const {
  const std::int64_t step = trainer_.steps_done();
  const std::optional<Best>& best = trainer_.progress().best;
  if (best && best->newest == step) return false;
  return step == 0 ? recipe_.at_start : recipe_.every > 0 && step % recipe_.every == 0;
}

bool PeriodicEvaluation::out_of_patience() const {
  const std::optional<Best>& best = trainer_.progress().best;
  return recipe_.patience > 0 && best && best->since >= recipe_.patience;
}

std::optional<EvaluationReport> PeriodicEvaluation::run(const Evaluator::AfterRound& after_round) {
  trainer_.executor().drain();
  const std::optional<Evaluation> result = evaluator_.run(after_round);
  if (!result) return std::nullopt;
  const std::int64_t step = trainer_.steps_done();
  const double value = result->loss;
  const bool greater = recipe_.greater_is_better.value_or(false);
  Best best = trainer_.progress().best.value_or(Best{step, value, -1, step});
  const bool is_best = best.since < 0 || (greater ? value > best.value : value < best.value);
  best = is_best ? Best{step, value, 0, step} : Best{best.step, best.value, best.since + 1, step};
  trainer_.set_best(best);
  return EvaluationReport{step, *result, is_best};
}

}  // namespace strata::runtime
