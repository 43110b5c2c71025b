#include "runtime/recipe/recipe.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/quantity.h"

namespace strata::runtime {

std::string_view name_of(Recompute::Kind kind) {
  switch (kind) {
    case Recompute::Kind::none:
      return "none";
    case Recompute::Kind::block:
      return "block";
    case Recompute::Kind::sqrt:
      return "sqrt";
    case Recompute::Kind::list:
      break;
  }
  return "list";
}

std::optional<device::StorageFormat> Recipe::Model::quantised() const {
  if (frozen_format == FrozenFormat::compute) return std::nullopt;
  return double_quant ? device::StorageFormat::nf4 : device::StorageFormat::nf4_plain;
}

device::Algorithm Recipe::Optimizer::algorithm() const {
  return name == OptimizerName::lion  ? device::Algorithm::lion
         : name == OptimizerName::sgd ? device::Algorithm::sgd
                                      : device::Algorithm::adamw;
}

device::StorageFormat Recipe::Optimizer::moment_format() const {
  using device::StorageFormat;
  return moments.value_or(name == OptimizerName::adamw8bit ? StorageFormat::block8 : StorageFormat::fp32);
}

namespace {

// The largest group of zero.*_group that is a number and has an effect: the data ranks are a multiple of it.
struct NumberedGroup {
  std::string_view key;
  std::int64_t ranks = 1;
};

NumberedGroup largest_numbered_group(const Recipe::Zero& zero) {
  const struct {
    std::string_view key;
    std::int64_t ranks;
    int stage;  // the first at which it has an effect
  } groups[] = {{"zero.optimizer_group", zero.optimizer_group, 1},
                {"zero.gradients_group", zero.gradients_group, 2},
                {"zero.parameters_group", zero.parameters_group, 3}};
  for (const auto& [key, ranks, stage] : groups)
    if (zero.stage >= stage && ranks > 1) return {key, ranks};
  return {};
}

}  // namespace

void Recipe::require_whole_replicas(int world_size) const {
  if (world_size % parallel.replica() == 0) return;
  const int tensor = parallel.tensor, stages = parallel.stages;
  const std::string keys = tensor == 1 ? fmt::format("parallel.stages = {}", stages)
                           : stages == 1
                               ? fmt::format("parallel.tensor = {}", tensor)
                               : fmt::format("parallel.tensor = {} times parallel.stages = {}", tensor, stages);
  const NumberedGroup group = largest_numbered_group(zero);
  const std::int64_t ranks = parallel.replica() * group.ranks;
  fail(Exit::usage,
       "{} cannot be divided into {}: use a multiple of {}{} (mpirun -n {}, launch --ranks-per-node {}, or --ranks {} "
       "for a plan)",
       counted(world_size, "rank"), keys, ranks,
       group.ranks > 1 ? fmt::format(" because of {} = {}", group.key, group.ranks) : "", ranks, ranks, ranks);
}

int Recipe::data_ranks(int world_size) const {
  if (world_size < parallel.replica()) require_whole_replicas(world_size);
  return world_size / parallel.replica();
}

int Recipe::accumulation_steps(int world_size) const {
  if (!training.global_batch_size) return static_cast<int>(training.gradient_accumulation_steps.value_or(1));
  STRATA_CHECK_LT(kAutomaticBatch, training.micro_batch_size);
  const int ranks = data_ranks(world_size);
  const std::int64_t per_round = ranks * training.micro_batch_size, global = *training.global_batch_size;
  if (global % per_round != 0 || global / per_round > (1 << 24)) {
    fail(Exit::usage,
         "training.global_batch_size = {} cannot be divided evenly over {} with training.micro_batch_size = {}: "
         "give a multiple of {}, another micro-batch size, or another number of ranks",
         global, counted(ranks, parallel.replica() > 1 ? "data rank" : "rank"), training.micro_batch_size, per_round);
  }
  return static_cast<int>(global / per_round);
}

offload::IoOptions Recipe::io_options() const {
  offload::IoOptions options;
  options.folders = memory.nvme;
  options.verify = memory.verify;
  options.engine = memory.io_engine;
  options.direct = memory.io_direct;
  options.registered = memory.io_registered;
  return options;
}

void require_trainable(const Recipe& recipe) {
  const bool steps = recipe.training.max_steps.has_value();
  const bool data = !recipe.data.train.empty() || recipe.training.max_steps == 0;
  constexpr std::string_view kData = "the token files to train on (strata tokenize makes them)";
  if (!steps && !data)
    fail(Exit::usage, "training.max_steps and data.train are missing: give the number of steps to train, and {}",
         kData);
  if (!steps) fail(Exit::usage, "training.max_steps is missing: give the number of steps to train");
  if (!data) fail(Exit::usage, "data.train is missing: give {}", kData);
  require_evaluable(recipe);
}

void require_evaluable(const Recipe& recipe) {
  const Recipe::Evaluation& evaluation = recipe.evaluation;
  if (evaluation.asked() && recipe.data.validation.empty())
    fail(Exit::usage,
         "evaluation.{} requests evaluations while training, but data.validation is missing: name the token files to "
         "evaluate on",
         evaluation.every > 0 ? "every" : "at_start");
  const auto needs_every = [&](bool asked, const char* key, const char* why) {
    if (asked && evaluation.every == 0)
      fail(Exit::usage, "{} {}, but evaluation.every is 0: set evaluation.every to the steps between evaluations", key,
           why);
  };
  needs_every(recipe.checkpoint.keep_best, "checkpoint.keep_best", "keeps what evaluations find best");
  needs_every(evaluation.patience > 0, "evaluation.patience", "counts evaluations");
  needs_every(evaluation.prompts.has_value() && !evaluation.at_start, "evaluation.prompts",
              "are continued at evaluations");
  if (recipe.checkpoint.keep_best && !recipe.checkpoint.dir)
    fail(Exit::usage, "checkpoint.keep_best needs checkpoint.dir: name the folder for checkpoints");
}

std::string steps_text(std::span<const StepRange> steps) {
  std::string out;
  for (const auto& [first, last] : steps)
    out +=
        (out.empty() ? "" : ", ") + (first == last ? fmt::format("{}", first) : fmt::format("\"{}-{}\"", first, last));
  return steps.size() == 1 ? out : "[" + out + "]";
}

std::string weights_text(std::span<const DataSource> sources) {
  std::string out;
  for (const DataSource& source : sources) out += fmt::format("{}{}", out.empty() ? "" : ", ", source.weight);
  return "[" + out + "]";
}

Recipe defaults_for(const Recipe& recipe) {
  Recipe out;
  if (recipe.model.path) out.model.init = Init::pretrained;
  if (recipe.optimizer.name == OptimizerName::lion) out.optimizer.betas = {0.9, 0.99};
  return out;
}

}  // namespace strata::runtime
