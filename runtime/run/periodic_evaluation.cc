#include "runtime/run/periodic_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "comm/exchange_values.h"
#include "runtime/recipe/evaluation_metric.h"
#include "runtime/run/generation/generator.h"
#include "runtime/run/reports/run_reports.h"

namespace strata::runtime {

Answers::Answers(const Job& job, comm::World& world, Executor& training, Prompts prompts)
    : world_(world), mesh_(job.plan.mesh()), prompts_(std::move(prompts)), generator_(*job.generation, training) {}

std::uint32_t Answers::next(std::span<const float> logits) {
  const std::uint32_t own = logits.empty() ? 0 : Sampler(0, 1, 0).pick(logits, 0);
  if (mesh_.stages == 1) return own;
  const auto last = static_cast<std::size_t>(mesh_.rank_of(0, 0, mesh_.stages - 1));
  return comm::exchange_value(world_, own)[last];
}

Answer Answers::answer(const Prompts::Prompt& prompt, const std::function<void()>& after_token) {
  text::StreamDecoder decoder(*prompts_.tokenizer);
  Answer out{prompt.text, {}};
  generator_.restart();
  std::span<const float> logits = generator_.append(prompt.tokens);
  const std::size_t most = std::min(kAnswerTokens, generator_.capacity() - prompt.tokens.size());
  for (std::size_t n = 0; n < most; ++n) {
    after_token();
    const std::uint32_t token = next(logits);
    // Tokens that the model has beyond the tokenizer's vocabulary mean nothing.
    if (std::find(prompt.ends.begin(), prompt.ends.end(), token) != prompt.ends.end() ||
        token >= prompts_.tokenizer->vocab_size())
      break;
    out.completion += decoder.add(token);
    if (n + 1 < most) logits = generator_.append({&token, 1});
  }
  out.completion += decoder.finish();
  return out;
}

std::vector<Answer> Answers::run(const std::function<void()>& after_token) {
  std::vector<Answer> out;
  for (const Prompts::Prompt& prompt : prompts_.all) out.push_back(answer(prompt, after_token));
  return out;
}

PeriodicEvaluation::PeriodicEvaluation(const Job& job, comm::World& world, Trainer& trainer,
                                       std::optional<Prompts> prompts)
    : recipe_(job.recipe.evaluation),
      trainer_(trainer),
      evaluator_(*job.evaluation, world, trainer.executor(), trainer.take_validation()) {
  STRATA_CHECK_EQ(job.generation != nullptr, prompts.has_value());
  if (prompts) answers_.emplace(job, world, trainer.executor(), std::move(*prompts));
}

std::optional<Best> best_after(const std::optional<Best>& before, std::int64_t step, std::optional<double> value,
                               bool greater) {
  // NaN counts as no value: otherwise nothing could ever be better.
  if (value && !std::isnan(*value) && (!before || (greater ? *value > before->value : *value < before->value)))
    return Best{step, *value, 0, step};
  if (!before) return std::nullopt;
  return Best{before->step, before->value, before->since + 1, step};
}

std::int64_t evaluations_without_improvement(const std::optional<Best>& best, std::int64_t without_value) {
  return best ? best->since : without_value;
}

bool PeriodicEvaluation::due() const {
  const std::int64_t step = trainer_.steps_done();
  const std::optional<Best>& best = trainer_.progress().best;
  if (best && best->newest == step) return false;
  return step == 0 ? recipe_.at_start : recipe_.every > 0 && step % recipe_.every == 0;
}

bool PeriodicEvaluation::patience_exhausted() const {
  return recipe_.patience > 0 && without_improvement() >= recipe_.patience;
}

Memory PeriodicEvaluation::measured_memory() const {
  Memory memory = evaluator_.executor().measured_memory();
  if (answers_)
    for (std::size_t tier = 0; tier < memory.size(); ++tier)
      memory[tier].peak = std::max(memory[tier].peak, answers_->measured_memory()[tier].peak);
  return memory;
}

std::optional<EvaluationReport> PeriodicEvaluation::run(const Evaluator::AfterRound& after_round,
                                                        const std::function<void()>& after_token) {
  trainer_.executor().drain();
  const comm::CommBytes before = trainer_.executor().comm_bytes();
  const std::optional<Evaluation> result = evaluator_.run(after_round);
  std::vector<Answer> answers;
  if (result && answers_) answers = answers_->run(after_token);
  sent_ += trainer_.executor().comm_bytes().since(before);
  if (!result) return std::nullopt;
  const std::int64_t step = trainer_.steps_done();
  std::vector<std::pair<std::string, double>> metrics = result->classes.metrics;
  if (metrics.empty()) metrics.emplace_back("eval_perplexity", result->perplexity);
  std::vector<std::string> notes = result->classes.notes;
  std::optional<double> value = result->loss;
  if (recipe_.metric != "eval_loss") {
    const auto found = std::find_if(metrics.begin(), metrics.end(),
                                    [&](const auto& metric) { return metric.first == recipe_.metric; });
    value = found == metrics.end() ? std::nullopt : std::optional(found->second);
    if (!value)
      notes.push_back(
          fmt::format("evaluation.metric = \"{}\" does not have a value at every evaluation: an evaluation without one "
                      "never counts as better",
                      recipe_.metric));
  }
  const bool greater = recipe_.greater_is_better.value_or(metric_named(recipe_.metric).greater_is_better);
  const std::optional<Best> best = best_after(trainer_.progress().best, step, value, greater);
  if (best)
    trainer_.set_best(*best);
  else
    ++without_value_;
  const bool is_best = best && best->step == step && best->since == 0 && value;
  return EvaluationReport{step,    result->loss,          result->labels,     result->sequences,  result->tokens_per_s,
                          is_best, seconds_since_epoch(), std::move(metrics), std::move(answers), std::move(notes)};
}

}  // namespace strata::runtime
