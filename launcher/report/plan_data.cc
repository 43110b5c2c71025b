#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "base/json/json_writer.h"
#include "launcher/report/report.h"

namespace strata::launcher {
namespace {

// Stores each name once, and gives each task and buffer the index of its name.
class Names {
 public:
  std::size_t of(const std::string& name) {
    const auto [at, is_new] = index_.emplace(name, index_.size());
    if (is_new) all_.add(name);
    return at->second;
  }
  const JsonArray& all() const { return all_; }

 private:
  std::map<std::string, std::size_t> index_;
  JsonArray all_;
};

// The list of f(i) for i in [0, n).
template <typename F>
JsonArray list(std::size_t n, F&& f) {
  JsonArray out;
  for (std::size_t i = 0; i < n; ++i) out.add(f(i));
  return out;
}

// Microseconds with one decimal.
Decimals microseconds(std::int64_t ns) {
  return {static_cast<double>(ns) * 1e-3, 1};
}

JsonArray tiers(const runtime::StepPlan& plan, const runtime::Capacity& capacity) {
  return list(runtime::kTiers, [&](std::size_t tier) {
    const runtime::TierMemory& memory = plan.memory[tier];
    const bool unlimited = capacity.tier[tier] == std::numeric_limits<std::size_t>::max();
    return JsonObject()
        .add("key", runtime::kTierNames[tier])
        .add("name", runtime::tier_title(tier, plan.device.kind == device::Kind::cpu))
        .add("peak", memory.peak)
        .add("capacity", unlimited ? 0 : capacity.tier[tier])
        .add("kinds", JsonArray().add_all(memory.by_kind));
  });
}

}  // namespace

std::string speeds_text(bool machine_file, bool measured) {
  if (!machine_file)
    return "Times are simulated with the nominal speeds of a small machine, and show the order of tasks rather than "
           "their durations: strata calibrate measures a machine.";
  return measured ? "Times are simulated with the speeds that strata calibrate measured."
                  : "Times are simulated with speeds that are computed from data sheets, not measured.";
}

std::string plan_data(const runtime::Job& job, const runtime::Capacity& capacity,
                      const runtime::MachineProfile& profile, std::span<const runtime::Span> spans,
                      const std::string& speeds) {
  const runtime::StepPlan& plan = job.plan;
  const auto& tasks = plan.tasks;
  Names names;
  const JsonArray task_names =
      list(tasks.size(), [&](std::size_t t) { return names.of(name_of(tasks[t], *job.model)); });
  // Only training lanes have a row. The tasks of the host's and checkpoint lanes have no row, but stay in the list.
  const auto lane = [&](std::size_t t) {
    const auto at = static_cast<std::size_t>(tasks[t].lane);
    return at < runtime::kTrainingLanes ? static_cast<int>(at) : -1;
  };
  const JsonArray waits = list(tasks.size(), [&](std::size_t t) { return JsonArray().add_all(tasks[t].waits); });
  std::vector<std::size_t> first(plan.buffers.size(), tasks.size()), last(plan.buffers.size(), 0);
  for (std::size_t t = 0; t < tasks.size(); ++t)
    for (const runtime::Use& use : tasks[t].uses) {
      const auto b = static_cast<std::size_t>(use.buffer);
      first[b] = std::min(first[b], t);
      last[b] = std::max(last[b], t);
    }
  JsonArray buffers;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const runtime::Buffer& buffer = plan.buffers[b];
    if (buffer.bytes == 0 || (!buffer.persistent && first[b] > last[b])) continue;
    buffers.add(JsonArray()
                    .add(names.of(buffer.name))
                    .add(static_cast<int>(buffer.tier))
                    .add(static_cast<int>(buffer.kind))
                    .add(buffer.offset)
                    .add(buffer.bytes)
                    .add(buffer.persistent ? 0 : first[b])
                    .add(buffer.persistent ? tasks.size() - 1 : last[b])
                    .add(buffer.persistent ? 1 : 0));
  }
  const runtime::BoundSeconds path = critical_path(plan, profile, spans);
  JsonObject bounds;
  for (std::size_t b = 0; b < path.size(); ++b) bounds.add(runtime::kBoundWords[b], Decimals{path[b] * 1e3, 4});
  return JsonObject()
      .add("strata_plan", 1)
      .add("model", job.model->family)
      .add("parameters", job.model->parameters())
      .add("ranks", plan.ranks())
      .add("data_ranks", plan.mesh().data())
      .add("stage", job.recipe.zero.stage)
      .add("order", runtime::order_name(plan))
      .add("fits", runtime::fits(plan, capacity))
      .add("step_ms", Decimals{1e3 * makespan_s(plan, spans), 4})
      .add("sent_bytes", plan.comm_bytes.total())
      .add("speeds", speeds)
      .add("path", bounds)
      .add("tiers", tiers(plan, capacity))
      .add("lanes", list(runtime::kTrainingLanes, [](std::size_t i) { return runtime::kLaneNames[i]; }))
      .add("names", names.all())
      .add("tasks", JsonObject()
                        .add("lane", list(tasks.size(), lane))
                        .add("name", task_names)
                        .add("begin", list(spans.size(), [&](std::size_t t) { return microseconds(spans[t].begin); }))
                        .add("end", list(spans.size(), [&](std::size_t t) { return microseconds(spans[t].end); }))
                        .add("waits", waits))
      .add("buffers", buffers)
      .text();
}

}  // namespace strata::launcher
