#include "runtime/job/search/candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "runtime/job/requirements.h"

namespace strata::runtime {
namespace {

// The keys of the state's tiers, in the order of Tiers.
constexpr std::array<std::pair<const char*, Tier Recipe::Zero::*>, 4> kStates = {
    {{"zero.parameters", &Recipe::Zero::parameters},
     {"zero.gradients", &Recipe::Zero::gradients},
     {"zero.optimizer", &Recipe::Zero::optimizer},
     {"zero.activations", &Recipe::Zero::activations}}};

// The keys of the groups that hold copies of state, and the stage from which each has an effect.
struct GroupKey {
  const char* key;
  std::int64_t Recipe::Zero::*group;
  int stage;
};
constexpr std::array<GroupKey, 3> kGroups = {{{"zero.optimizer_group", &Recipe::Zero::optimizer_group, 1},
                                              {"zero.gradients_group", &Recipe::Zero::gradients_group, 2},
                                              {"zero.parameters_group", &Recipe::Zero::parameters_group, 3}}};

bool has_change(const Changes& changes, const char* key) {
  return std::ranges::any_of(changes, [&](const auto& change) { return change.first == key; });
}

// True if another mesh leaves a step fewer sequences: data ranks are fewer, and their micro-batches do not make up for
// it.
bool makes_batch_smaller(const Recipe& recipe, const Changes& changes) {
  if (recipe.training.global_batch_size) return false;
  const auto value = [&](const char* key, std::int64_t now) {
    const auto it = std::ranges::find(changes, key, &Changes::value_type::first);
    return it == changes.end() ? now : static_cast<std::int64_t>(std::stoll(it->second));
  };
  const Recipe::Parallel& parallel = recipe.parallel;
  const std::int64_t size = recipe.training.micro_batch_size;
  const std::int64_t steps = recipe.training.gradient_accumulation_steps.value_or(1);
  const std::int64_t replica = value("parallel.tensor", parallel.tensor) * value("parallel.stages", parallel.stages);
  const std::int64_t sequences =
      value("training.micro_batch_size", size) * value("training.gradient_accumulation_steps", steps);
  return replica > parallel.replica() && sequences * parallel.replica() < size * steps * replica;
}

// True if ranks that share each layer could divide the rows of micro-batches of this size, and do not do so yet.
bool may_divide_rows(const Recipe& recipe, const Scope& scope, std::int64_t size) {
  if (scope.purpose != Purpose::train || recipe.parallel.tensor == 1 || recipe.parallel.sequence) return false;
  Recipe divided = recipe;
  divided.parallel.sequence = true;
  return is_divisible_width(scope.width) && size % multiple_of_sequences(divided) == 0;
}

// The smallest number of sequences that a micro-batch may have; every other number is a multiple of it.
std::int64_t fewest_sequences(const Recipe& recipe, Purpose purpose) {
  return purpose == Purpose::train ? multiple_of_sequences(recipe) : 1;
}

}  // namespace

Numbers numbers_with(const Recipe& recipe, const Changes& changes) {
  const auto has = [&](const char* key) { return has_change(changes, key); };
  if (has("training.precision")) return Numbers::other;
  if (makes_batch_smaller(recipe, changes)) return Numbers::smaller_batch;
  if (has("training.micro_batch_size")) return Numbers::other_dropout;  // its masks belong to a micro-batch
  // Virtual shards keep the bits, and so does the order of micro-batches, unless data ranks add up their own first.
  const bool other_shards = has("parallel.tensor_shards") || (has("parallel.tensor") && recipe.parallel.shards() == 1);
  const bool other_sums = recipe.training.reduce == Reduce::fast && (has("parallel.tensor") || has("parallel.stages"));
  return other_shards || other_sums ? Numbers::rounded : Numbers::same;
}

void add_changes(const Candidate& from, const Scope& scope, std::vector<Candidate>& out) {
  const auto& [ranks, purpose, bf16, width] = scope;
  const auto add = [&](const char* key, std::string value, auto&& change) {
    if (has_change(from.changes, key)) return;
    Candidate& c = out.emplace_back(from);
    c.changes.emplace_back(key, std::move(value));
    change(c.recipe);
  };
  const Recipe& r = from.recipe;
  if (ranks > 1)
    for (int stage = r.zero.stage + 1; stage <= 3; ++stage)
      add("zero.stage", std::to_string(stage), [&](Recipe& c) { c.zero.stage = stage; });
  if (ranks > 1 && purpose == Purpose::train)
    for (const auto& [key, group, stage] : kGroups)
      if (r.zero.*group != kAllRanks && r.zero.stage >= stage)
        add(key, "\"all\"", [at = group](Recipe& c) { c.zero.*at = kAllRanks; });
  if (purpose == Purpose::train && r.training.recompute.kind != Recompute::Kind::block) {
    if (r.training.recompute.kind != Recompute::Kind::sqrt)
      add("training.recompute", "\"sqrt\"", [](Recipe& c) { c.training.recompute = {Recompute::Kind::sqrt, {}}; });
    add("training.recompute", "\"block\"", [](Recipe& c) { c.training.recompute = {Recompute::Kind::block, {}}; });
  }
  if (may_divide_rows(r, scope, r.training.micro_batch_size))
    add("parallel.sequence", "true", [](Recipe& c) { c.parallel.sequence = true; });
  // Half, a quarter, ... of the micro-batch with proportionally more accumulation steps, so that the global batch stays
  // the same.
  for (std::int64_t divide = 2; divide <= r.training.micro_batch_size; divide *= 2) {
    if (r.training.micro_batch_size % divide != 0 || has_change(from.changes, "training.gradient_accumulation_steps"))
      break;
    const std::int64_t size = r.training.micro_batch_size / divide;
    if (size % fewest_sequences(r, purpose) != 0) break;
    if (purpose != Purpose::train) {
      add("training.micro_batch_size", std::to_string(size), [&](Recipe& c) { c.training.micro_batch_size = size; });
      continue;
    }
    const std::int64_t steps = r.accumulation_steps(ranks) * divide;
    if (steps > kMaxCalls) break;
    add("training.micro_batch_size", std::to_string(size), [&](Recipe& c) {
      c.training.micro_batch_size = size;
      if (!c.training.global_batch_size) c.training.gradient_accumulation_steps = steps;
    });
    if (!r.training.global_batch_size && !out.empty() && out.back().changes.back().first == "training.micro_batch_size")
      out.back().changes.emplace_back("training.gradient_accumulation_steps", std::to_string(steps));
  }
  // Moves state to a slower tier, the largest first; to NVMe only if the recipe names drives.
  const auto offload = [&](const char* key, Tier tier, Tier Recipe::Zero::*at) {
    if (tier < Tier::host) add(key, "\"host\"", [&](Recipe& c) { c.zero.*at = Tier::host; });
    if (tier < Tier::nvme && !r.memory.nvme.empty()) add(key, "\"nvme\"", [&](Recipe& c) { c.zero.*at = Tier::nvme; });
  };
  if (purpose == Purpose::train) offload("zero.optimizer", r.zero.optimizer, &Recipe::Zero::optimizer);
  if (purpose == Purpose::train && r.zero.optimizer != Tier::device)
    offload("zero.gradients", r.zero.gradients, &Recipe::Zero::gradients);
  if (purpose != Purpose::train || r.zero.optimizer != Tier::device)
    offload("zero.parameters", r.zero.parameters, &Recipe::Zero::parameters);
  if (purpose == Purpose::train && r.training.recompute.kind != Recompute::Kind::none)
    offload("zero.activations", r.zero.activations, &Recipe::Zero::activations);
  // Moves state back to the device, in case the host's memory is too small.
  for (const std::size_t state : {3, 1, 2, 0}) {
    const auto [key, at] = kStates[state];
    if ((purpose == Purpose::train || state == 0) && r.zero.*at != Tier::device)
      add(key, "\"device\"", [at = at](Recipe& c) { c.zero.*at = Tier::device; });
  }
  if ((r.zero.stage == 3 && ranks > 1) || r.zero.parameters != Tier::device)
    for (const std::int64_t prefetch : {1, 0})
      if (prefetch < r.memory.prefetch)
        add("memory.prefetch", std::to_string(prefetch), [&](Recipe& c) { c.memory.prefetch = prefetch; });
  // Let the plan choose the tile size.
  if (r.memory.tile && ((r.zero.stage == 3 && ranks > 1) || r.zero.parameters != Tier::device))
    add(kTileKey, "", [](Recipe& c) { c.memory.tile.reset(); });
  if (r.memory.order == AccumulationOrder::vertical)
    add("memory.order", "\"horizontal\"", [](Recipe& c) { c.memory.order = AccumulationOrder::horizontal; });
  if (bf16 && r.training.precision == device::DType::fp32)
    add("training.precision", "\"bf16\"", [](Recipe& c) { c.training.precision = device::DType::bf16; });
}

std::vector<Tiers> choices_of_tiers(const Recipe& recipe, Purpose purpose) {
  std::vector<Tiers> all{
      {recipe.zero.parameters, recipe.zero.gradients, recipe.zero.optimizer, recipe.zero.activations}};
  const Tiers now = all[0];
  for (std::size_t state = 0; state < kStates.size(); ++state) {
    if (purpose != Purpose::train && state > 0) break;  // a plan of forwards has parameters only
    const std::size_t before = all.size();
    for (std::size_t i = 0; i < before; ++i)
      for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        if (tier == now[state] || (tier == Tier::nvme && recipe.memory.nvme.empty())) continue;
        all.push_back(all[i]);
        all.back()[state] = tier;
      }
  }
  const auto changes = [&](const Tiers& tiers) {
    std::size_t changed = 0;
    for (std::size_t state = 0; state < tiers.size(); ++state) changed += tiers[state] != now[state] ? 1 : 0;
    return changed;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Tiers& a, const Tiers& b) { return changes(a) < changes(b); });
  return all;
}

std::vector<Step> all_steps(const Recipe& recipe, const Scope& scope, const Tiers& tiers, bool one_by_one) {
  const auto& [ranks, purpose, bf16, width] = scope;
  std::vector<Step> steps;
  const auto add = [&](const char* key, std::string value, std::function<void(Recipe&)> make) {
    steps.push_back({{{key, std::move(value)}}, std::move(make)});
  };
  if (ranks > 1 && recipe.zero.stage < 3) add("zero.stage", "3", [](Recipe& c) { c.zero.stage = 3; });
  if (ranks > 1 && purpose == Purpose::train)
    for (const auto& [key, group, stage] : kGroups)
      if (recipe.zero.*group != kAllRanks) add(key, "\"all\"", [at = group](Recipe& c) { c.zero.*at = kAllRanks; });
  if (purpose == Purpose::train && recipe.training.recompute.kind != Recompute::Kind::block)
    add("training.recompute", "\"block\"", [](Recipe& c) { c.training.recompute = {Recompute::Kind::block, {}}; });
  const std::int64_t now = recipe.training.micro_batch_size;
  const std::int64_t size = one_by_one ? fewest_sequences(recipe, purpose) : now;
  if (may_divide_rows(recipe, scope, size))
    add("parallel.sequence", "true", [](Recipe& c) { c.parallel.sequence = true; });
  for (std::size_t state = 0; state < kStates.size(); ++state) {
    const auto [key, at] = kStates[state];
    if (recipe.zero.*at == tiers[state]) continue;
    add(key, fmt::format("\"{}\"", kTierNames[static_cast<std::size_t>(tiers[state])]),
        [at = at, tier = tiers[state]](Recipe& c) { c.zero.*at = tier; });
  }
  if (size < now) {
    add("training.micro_batch_size", std::to_string(size), [size](Recipe& c) { c.training.micro_batch_size = size; });
    if (purpose == Purpose::train && !recipe.training.global_batch_size) {
      const std::int64_t times = recipe.accumulation_steps(ranks) * now / size;
      steps.back().changes.emplace_back("training.gradient_accumulation_steps", std::to_string(times));
      steps.back().make = [size, times](Recipe& c) {
        c.training.micro_batch_size = size;
        c.training.gradient_accumulation_steps = times;
      };
    }
  }
  if (recipe.memory.tile) add(kTileKey, "", [](Recipe& c) { c.memory.tile.reset(); });
  if (recipe.memory.prefetch > 0) add("memory.prefetch", "0", [](Recipe& c) { c.memory.prefetch = 0; });
  if (recipe.memory.order == AccumulationOrder::vertical)
    add("memory.order", "\"horizontal\"", [](Recipe& c) { c.memory.order = AccumulationOrder::horizontal; });
  if (bf16 && recipe.training.precision == device::DType::fp32)
    add("training.precision", "\"bf16\"", [](Recipe& c) { c.training.precision = device::DType::bf16; });
  return steps;
}

Candidate candidate_of(const Recipe& recipe, const std::vector<Step>& steps) {
  Candidate c{recipe, {}};
  for (const Step& step : steps) {
    step.make(c.recipe);
    c.changes.insert(c.changes.end(), step.changes.begin(), step.changes.end());
  }
  return c;
}

Layout layout_of(const Workload& workload, int ranks) {
  const Recipe& recipe = workload.recipe;
  const std::size_t shards = workload.shards();
  require_mesh(recipe, shards, ranks);
  models::RunShape shape{1, static_cast<std::size_t>(recipe.data.seq_len), recipe.training.precision, 1};
  shape.objective = workload.objective();
  shape.freeze = recipe.training.freeze;
  shape.adapter = workload.adapter().shared();
  shape.quantise = workload.quantised();
  shape.shards = {0, shards / static_cast<std::size_t>(recipe.parallel.tensor), shards};
  const Mesh mesh{ranks, {}, ranks_per_node(workload.nodes, ranks), recipe.parallel.tensor, recipe.parallel.stages};
  return make_layout(*models::make_model(workload.config(), shape), mesh, recipe.optimizer.moment_format());
}

bool state_may_fit(const Recipe& recipe, const Layout& layout, const Capacity& capacity) {
  const Placement placement = placement_of(recipe.zero, layout.mesh.data_per_node());
  const auto elements = [&](const StatePlacement& state, PoolKind pool) {
    std::size_t sum = 0;
    for (const UnitLayout& unit : layout.units)
      sum += unit.pool(pool).shards.in_pieces(state.pieces(layout.mesh)).size();
    return sum;
  };
  const device::DType dtype = recipe.training.precision;
  const std::size_t parameter = device::size_of(dtype), part = elements(placement.optimizer, PoolKind::trained);
  const std::size_t sums = elements(placement.sums(), PoolKind::trained);
  // The sums of all units exist at the same time when their norm is computed.
  const bool has_sums = layout.mesh.data() > 1 || recipe.accumulation_steps(layout.mesh.world) > 1;
  const std::size_t master = dtype == device::DType::fp32 ? 0 : sizeof(float);  // fp32 parameters are their own master
                                                                                // copy
  const std::size_t moment = recipe.optimizer.moment_format() == device::StorageFormat::block8 ? 1 : 2;  // lower bounds
  const auto moments = static_cast<std::size_t>(device::moment_count(recipe.optimizer.algorithm()));

  std::array<std::size_t, kTiers> bytes{};
  const auto add = [&](Tier tier, std::size_t size) { bytes[static_cast<std::size_t>(tier)] += size; };
  for (const PoolKind pool : kPools) {
    const device::StorageFormat format = pool == PoolKind::quantised ? layout.quantised : format_of(dtype);
    add(placement.parameters.tier, stored_bytes(format, elements(placement.parameters, pool)));
  }
  add(placement.gradients.tier, sums * (has_sums ? sizeof(float) : parameter));
  add(placement.optimizer.tier, part * (master + moments * moment));
  // The units of all stages of a pipeline: one of the stages has at least an equal part of them.
  const auto stages = static_cast<std::size_t>(layout.mesh.stages);
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    if (bytes[tier] / stages > capacity.tier[tier]) return false;
  return (bytes[0] + bytes[1]) / stages <= capacity.together;
}

bool is_worth_planning(const Recipe& recipe, const Layout& layout, const Capacity& capacity) {
  constexpr std::size_t kMaxUpdated = std::size_t{1} << 36;
  std::size_t elements = 0;
  for (const UnitLayout& unit : layout.units) elements += unit.padded();
  elements /= static_cast<std::size_t>(layout.mesh.stages);
  const bool whole = !placement_of(recipe.zero).optimizer.sharded() && layout.mesh.data() > 1;
  if (whole && recipe.zero.optimizer != Tier::device && elements > kMaxUpdated) return false;
  return state_may_fit(recipe, layout, capacity);
}

}  // namespace strata::runtime
