#include "runtime/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "comm/exchange_values.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/tokens.h"
#include "runtime/objective/objective.h"
#include "runtime/run/schedule.h"
#include "runtime/run/tokenizer_match.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {
namespace {

device::Optimizer optimizer_of(const Recipe::Optimizer& o) {
  return {o.algorithm(), o.betas[0], o.betas[1], o.eps, o.momentum, o.weight_decay};
}

}  // namespace

Trainer::Trainer(const Job& job, comm::World& world, int threads, const std::optional<offload::IoOptions>& io,
                 OpenedData opened)
    : job_(job),
      world_(world),
      executor_(job.plan, *job.model, world, optimizer_of(job.recipe.optimizer), threads,
                io.value_or(job.recipe.io_options())),
      index_memory_(job.plan, executor_),
      scaler_(job.recipe.training.precision == device::DType::fp16, job.recipe.fp16) {
  const Recipe& recipe = job.recipe;
  std::vector<comm::FileFingerprint> train, validation;
  agree(world, [&] {
    const auto check = [&](std::span<const TokenFile> files) { require_types_of_model(*job.model, files); };
    const auto vocabulary = static_cast<std::int64_t>(job.model->vocabulary);
    const MakeLabelling labelling = labelling_of(job);
    if (!recipe.data.train.empty())
      batches_ = std::make_unique<Batches>(
          open_training_data(recipe, {vocabulary, check, train, index_memory_.resource(), labelling, job.packing()},
                             std::move(opened.train)));
    const OpenContext of_validation{vocabulary, check, validation, index_memory_.resource(), labelling, job.packing()};
    if (recipe.evaluation.asked())
      validation_ = open_validation_data(recipe, of_validation, std::move(opened.validation));
    else if (!recipe.data.validation.empty())
      check_validation_data(recipe, of_validation);  // reports early what `strata eval` would refuse
  });
  comm::require_same(train, world);
  data_hash_ = hash_of_contents(train);
  comm::require_same(validation, world);
  validation_hash_ = hash_of_contents(validation);
  progress_.loss_scale = scaler_.state();
}

void Trainer::load_initial_weights(int threads, const Note& note, const Advance& advance) {
  const auto weights = first_weights(job_, world_, threads, note);
  base_ = load_same_weights(executor_, *job_.model, job_.plan, *weights, threads, world_, advance);
}

void Trainer::load_base(const std::string& hash, int threads, const Note& note, const Advance& advance) {
  const auto weights = first_base(job_, world_, threads, note, hash);
  base_ = load_same_weights(executor_, *job_.model, job_.plan, *weights, threads, world_, advance, true);
}

void Trainer::restore(const Progress& progress) {
  progress_ = progress;
  newest_step_ = progress.step;
  if (scaler_.enabled()) scaler_.restore(progress.loss_scale);
  progress_.loss_scale = scaler_.state();
}

device::StepScalars Trainer::scalars_of_next_step() const {
  const Recipe& recipe = job_.recipe;
  const double t = static_cast<double>(progress_.updates + 1);
  device::StepScalars s{};
  s.seed = recipe.training.seed;
  s.first_micro_batch = progress_.next_micro_batch;
  s.loss_gradient = static_cast<float>(static_cast<double>(scaler_.scale()) /
                                       static_cast<double>(std::max<std::uint64_t>(labels_, 1)));
  s.unscale = 1.0f / scaler_.scale();
  s.learning_rate = static_cast<float>(
      learning_rate(recipe.scheduler, recipe.optimizer.learning_rate, *recipe.training.max_steps, progress_.step + 1));
  s.bias_correction1 = static_cast<float>(1 - std::pow(recipe.optimizer.betas[0], t));
  s.bias_correction2 = static_cast<float>(1 - std::pow(recipe.optimizer.betas[1], t));
  s.max_grad_norm = static_cast<float>(recipe.training.max_grad_norm);
  return s;
}

void Trainer::load_batches() {
  const Mesh& mesh = job_.plan.mesh();
  const std::uint64_t first = progress_.next_micro_batch;
  labels_ = 0;
  for (std::uint64_t k = first; k < first + micro_batches_per_step(); ++k) labels_ += batches_->labels(k);
  for (int g = 0; g < job_.plan.accumulation; ++g)
    batches_->fill(mesh.micro_batch(first, static_cast<std::uint64_t>(g), mesh.at(world_.rank())), executor_.batch(g));
}

StepReport Trainer::step(std::uint64_t requests) {
  const SteadyClock::time_point start = SteadyClock::now();
  load_batches();
  const device::StepScalars scalars = scalars_of_next_step();
  const IoBytes before = executor_.io_bytes();
  const Recipe::Report& report = job_.recipe.report;
  const std::int64_t number = progress_.step + 1;
  if ((report.trace || report.summary) &&
      (number == job_.recipe.training.max_steps || number == job_.recipe.checkpoint.stop_after))
    executor_.time_next_step();
  newest_step_ = number;
  const device::StepResult result = executor_.step(scalars, requests);
  const bool skipped = executor_.skipped();
  if (skipped && !scaler_.enabled()) report_nonfinite(result);
  // The scale multiplies gradients only: whether the forward is finite does not depend on it.
  const bool forward_is_finite = std::isfinite(result.loss_sum);
  std::string note;
  if (forward_is_finite) {
    nonfinite_forwards_.in_a_row = 0;
  } else {
    note = take_nonfinite_forward();
  }
  ++progress_.step;
  if (!skipped) ++progress_.updates;
  progress_.next_micro_batch += micro_batches_per_step();
  const double scale = static_cast<double>(scaler_.scale());
  if (forward_is_finite) scaler_.update(skipped);
  progress_.loss_scale = scaler_.state();
  if (scaler_.exhausted()) report_exhausted_scale();
  const std::uint64_t tokens = job_.plan.tokens * micro_batches_per_step();
  progress_.tokens += tokens;
  const double seconds = seconds_since(start);
  return {
      .step = progress_.step,
      .loss = result.loss_sum / static_cast<double>(std::max<std::uint64_t>(labels_, 1)),
      .grad_norm = result.gradient_norm,
      .learning_rate = learning_rate(job_.recipe.scheduler, job_.recipe.optimizer.learning_rate,
                                     *job_.recipe.training.max_steps, progress_.step),
      .loss_scale = scale,
      .skipped = skipped,
      .tokens = tokens,
      .step_ms = seconds * 1e3,
      .stop = (result.requests & (kCheckpoint - 1)) != 0,
      .disk_bytes = executor_.io_bytes().of(Tier::nvme) - before.of(Tier::nvme),
      .time = seconds_since_epoch(),
      .epoch = batches_->epochs_before(progress_.next_micro_batch),
      .labels = labels_,
      .at_once = (result.requests & kStopAtOnce) != 0,
      .save = (result.requests & kCheckpoint) != 0,
      .note = std::move(note),
  };
}

// The first unit, over all ranks, whose numbers were not finite in the last step.
std::string Trainer::first_nonfinite() {
  int unit = -1;
  for (const int theirs : comm::exchange_value(world_, executor_.first_nonfinite_unit()))
    if (theirs >= 0) unit = unit < 0 ? theirs : std::min(unit, theirs);
  if (unit < 0) return "every unit's output was finite, so a gradient overflowed";
  return fmt::format("the first unit whose output was not finite is {}",
                     job_.model->units[static_cast<std::size_t>(unit)]->name());
}

void Trainer::report_nonfinite(const device::StepResult& result) {
  throw AgreedError(
      Exit::failed,
      fmt::format("step {}: the {} is not finite; {}; stopped before the update: lower optimizer.learning_rate, raise "
                  "scheduler.warmup_steps, or look at the data of this step",
                  progress_.step + 1, std::isfinite(result.loss_sum) ? "gradient norm" : "loss", first_nonfinite()),
      {EndReason::Kind::not_finite, progress_.step + 1});
}

std::string Trainer::take_nonfinite_forward() {
  constexpr const char* kWhatToDo = "set training.precision = \"bf16\" or \"fp32\", or lower optimizer.learning_rate";
  ++nonfinite_forwards_.all;
  ++nonfinite_forwards_.in_a_row;
  const std::int64_t step = progress_.step + 1;
  if (nonfinite_forwards_.in_a_row == kNonfiniteForwards)
    throw AgreedError(Exit::failed,
                      fmt::format("step {}: the loss is not finite, {} steps in a row; {}; stopped before the update, "
                                  "because the loss scale does not affect forward: {}",
                                  step, kNonfiniteForwards, first_nonfinite(), kWhatToDo),
                      {EndReason::Kind::overflow, step});
  if (nonfinite_forwards_.all > 1) return {};
  return fmt::format(
      "step {} is skipped: its loss is not finite; {}; the loss scale does not affect forward, so it is kept, and {} "
      "such steps in a row end the run; if it happens again, {}",
      step, first_nonfinite(), kNonfiniteForwards, kWhatToDo);
}

void Trainer::report_exhausted_scale() {
  throw AgreedError(Exit::failed,
                    fmt::format("step {}: the loss scale has been halved until its inverse overflows, so no scale "
                                "keeps the gradients finite; {}; stopped "
                                "without an update: use training.precision = bf16, or lower optimizer.learning_rate",
                                progress_.step, first_nonfinite()),
                    {EndReason::Kind::overflow, progress_.step});
}

}  // namespace strata::runtime
