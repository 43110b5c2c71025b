#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "launcher/commands/plan/plan.h"
#include "runtime/job/requirements.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

using runtime::Recipe;

// A step with more micro-batches takes long to simulate, and such a fine split does not make it faster.
constexpr int kMaxMicroBatches = 256;

// The sizes up to the largest whose speeds are predicted.
std::vector<std::int64_t> sizes_to_compare(const Recipe& recipe, int ranks, std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  Recipe of_size = recipe;
  std::int64_t& size = of_size.training.micro_batch_size;
  const auto& global = recipe.training.global_batch_size;
  for (size = 1; size < largest; size = global ? size + 1 : 2 * size)
    if (runtime::takes_micro_batches(of_size, ranks)) sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

BatchSpeed speed_of(const runtime::Job& job, const runtime::Memory& memory, const Forecast& f) {
  const double tokens = static_cast<double>(job.plan.tokens) * job.plan.accumulation * job.plan.mesh().data();
  BatchSpeed speed{
      job.recipe.training.micro_batch_size, runtime::order_name(job.plan), memory, f.step_ms, f.tokens_per_s, f.path};
  for (double& seconds : speed.path_per_token) seconds /= tokens;
  return speed;
}

// Empty if the setup does not fit. For a pipeline, the memory of the largest stage and the path of the slowest.
std::optional<BatchSpeed> find_speed(const PlanSetup& setup) {
  const auto fits = [&](const runtime::Job& job) { return runtime::fits(job.plan, setup.capacity); };
  if (setup.workload.recipe.parallel.stages == 1) {
    const runtime::Job job = runtime::make_job(setup.workload, setup.ranks, setup.capacity);
    if (!fits(job)) return std::nullopt;
    return speed_of(job, job.plan.memory, forecast(job, *setup.machine, setup.ranks_per_node));
  }
  const std::vector<PlannedStage> stages = plan_pipeline(setup);
  if (!std::ranges::all_of(stages, fits, &PlannedStage::job)) return std::nullopt;
  const runtime::Job& slowest = stages[slowest_of(stages, std::nullopt)].job;
  return speed_of(slowest, stages[stage_of(stages, std::nullopt)].job.plan.memory,
                  forecast(slowest, *setup.machine, setup.ranks_per_node, simulated(stages)));
}

// The part of a step that accounts for most of the difference between two speeds, for example "mostly optimizer (0.21
// and 0.01 ms)".
std::string reason(const BatchSpeed& fast, const BatchSpeed& slow) {
  std::size_t most = 0;
  const auto gained = [&](std::size_t b) { return slow.path_per_token[b] - fast.path_per_token[b]; };
  for (std::size_t b = 1; b < fast.path_per_token.size(); ++b)
    if (gained(b) > gained(most)) most = b;
  return fmt::format("with {} it takes {:.3g} us, and most of the difference is {} ({:.3g} and {:.3g} us)", slow.size,
                     1e6 / slow.tokens_per_s, runtime::kBoundWords[most], fast.path_per_token[most] * 1e6,
                     slow.path_per_token[most] * 1e6);
}

// "device 24,318,976 bytes, host 4,096 bytes".
std::string exact_text(const runtime::Memory& memory) {
  std::string text;
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
    if (memory[tier].peak > 0)
      text +=
          fmt::format("{}{} {} bytes", text.empty() ? "" : ", ", runtime::kTierNames[tier], grouped(memory[tier].peak));
  return text;
}

JsonObject planned_json(const runtime::PlannedBatch& batch) {
  return JsonObject().add("size", batch.size).add("memory", JsonText{runtime::memory_json(batch.memory, nullptr)});
}

}  // namespace

const BatchSpeed* MaxBatch::fastest() const {
  const auto slower = [](const BatchSpeed& a, const BatchSpeed& b) { return a.tokens_per_s < b.tokens_per_s; };
  const auto at = std::max_element(speeds.begin(), speeds.end(), slower);
  return at == speeds.end() ? nullptr : &*at;
}

MaxBatch find_max_batch(const PlanSetup& setup) {
  const auto& [workload, ranks, capacity, machine, ranks_per_node] = setup;
  const Recipe& recipe = workload.recipe;
  MaxBatch found{runtime::largest_micro_batch(workload, ranks, capacity),
                 {},
                 recipe.training.global_batch_size.value_or(0) / std::max(1, recipe.data_ranks(ranks)),
                 runtime::multiple_of_micro_batches(recipe, ranks),
                 recipe.parallel.schedule == runtime::Schedule::interleaved};
  if (!machine || !found.largest.fits) return found;
  for (const std::int64_t size : sizes_to_compare(recipe, ranks, found.largest.fits->size)) {
    Recipe of_size = recipe;
    of_size.training.micro_batch_size = size;
    if (recipe.training.global_batch_size && of_size.accumulation_steps(ranks) > kMaxMicroBatches) continue;
    const runtime::Workload other = workload.with(std::move(of_size));
    if (const auto speed = find_speed({other, ranks, capacity, machine, ranks_per_node}))
      found.speeds.push_back(*speed);
  }
  return found;
}

namespace {

// Why a larger micro-batch is impossible, if memory is not the reason.
std::string no_larger(const MaxBatch& found) {
  if (found.part == 0) return "that is as many tokens as a micro-batch can have\n";
  const std::string part = "a rank's part of training.global_batch_size";
  if (found.multiple == 1) return fmt::format("that is {}: a larger one would need a larger batch\n", part);
  return fmt::format("{} is {}, and {} {} micro-batches at a time: a larger one would need a larger batch\n", part,
                     found.part, found.interleaved ? "parallel.schedule takes" : "training.reduce_group needs",
                     found.multiple);
}

}  // namespace

std::string max_batch_text(const MaxBatch& found) {
  const auto& [fits, too_large] = found.largest;
  if (!fits) return "no micro-batch fits, not even of one sequence\n";
  std::string of_fits = runtime::memory_text(fits->memory), of_larger;
  if (too_large) of_larger = runtime::memory_text(too_large->memory);
  if (of_fits == of_larger) {  // exact figures, so that the two differ
    of_fits = exact_text(fits->memory);
    of_larger = exact_text(too_large->memory);
  }
  std::string text = fmt::format("largest micro-batch that fits: {} ({})\n", fits->size, of_fits);
  text += too_large ? fmt::format("with {} a step would take {}\n", too_large->size, of_larger) : no_larger(found);
  const BatchSpeed* fastest = found.fastest();
  if (!fastest) return text;
  text += fmt::format("{:>11}{:>12}{:>14}{:>18}{:>12}\n", "micro-batch", "peak", "a step", "speed", "order");
  for (const BatchSpeed& speed : found.speeds)
    text += fmt::format("{:>11}{:>12}{:>14}{:>18}{:>12}\n", speed.size, bytes_text(speed.memory[0].peak),
                        step_time_text(speed.step_ms), tokens_rate_text(speed.tokens_per_s), speed.order);
  text += fmt::format("predicted fastest per token: {}, at {:.3g} us", fastest->size, 1e6 / fastest->tokens_per_s);
  const BatchSpeed &smallest = found.speeds.front(), &largest = found.speeds.back();
  if (fastest != &smallest) text += "; " + reason(*fastest, smallest);
  if (fastest != &largest) text += "; " + reason(*fastest, largest);
  return text + "\n";
}

std::string max_batch_json(const MaxBatch& found) {
  const auto& [fits, too_large] = found.largest;
  JsonArray speeds;
  for (const BatchSpeed& speed : found.speeds)
    speeds.add(JsonObject()
                   .add("size", speed.size)
                   .add("device_peak_bytes", speed.memory[0].peak)
                   .add("step_ms", Decimals{speed.step_ms, 3})
                   .add("tokens_per_s", Decimals{speed.tokens_per_s, 1})
                   .add("order", speed.order));
  const BatchSpeed* fastest = found.fastest();
  return JsonObject()
      .add("size", fits ? std::optional(fits->size) : std::nullopt)
      .add("too_large", too_large ? std::optional(planned_json(*too_large)) : std::nullopt)
      .add("fastest", fastest ? std::optional(fastest->size) : std::nullopt)
      .add("speeds", speeds)
      .text();
}

}  // namespace strata::launcher
