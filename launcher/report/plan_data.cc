#include "launcher/report/plan_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/recipe/value.h"

namespace strata::launcher {
namespace {

using runtime::json_string;

// Names once each, and which one a task or buffer has.
class Names {
 public:
  std::size_t of(const std::string& name) {
    const auto [at, is_new] = index_.emplace(name, index_.size());
    if (is_new) all_ += (all_.empty() ? "" : ",") + json_string(name);
    return at->second;
  }
  const std::string& all() const { return all_; }

 private:
  std::map<std::string, std::size_t> index_;
  std::string all_;
};

// A list in JSON, of what f(i) makes of 0 .. n-1.
template <typename F>
std::string list(std::size_t n, F&& f) {
  std::string text = "[";
  for (std::size_t i = 0; i < n; ++i) text += (i ? "," : "") + f(i);
  return text + "]";
}

// In microseconds, to the tenth.
std::string microseconds(std::int64_t ns) {
  return fmt::format("{:.1f}", static_cast<double>(ns) * 1e-3);
}

std::string tiers(const runtime::StepPlan& plan, const runtime::Capacity& capacity) {
  return list(runtime::kTiers, [&](std::size_t tier) {
    const runtime::TierMemory& memory = plan.memory[tier];
    const bool unlimited = capacity.tier[tier] == std::numeric_limits<std::size_t>::max();
    return fmt::format("{{\"key\":\"{}\",\"name\":\"{}\",\"peak\":{},\"capacity\":{},\"kinds\":{}}}",
                       runtime::kTierNames[tier], runtime::tier_title(tier, plan.device.kind == device::Kind::cpu),
                       memory.peak, unlimited ? 0 : capacity.tier[tier],
                       list(runtime::kKinds, [&](std::size_t k) { return fmt::to_string(memory.by_kind[k]); }));
  });
}

}  // namespace

std::string speeds_text(bool machine_file, bool measured) {
  if (!machine_file)
    return "Times are simulated with the nominal speeds of a small machine, and show the order of things rather than "
           "how "
           "long they take: strata calibrate measures a machine.";
  return measured ? "Times are simulated with the speeds that strata calibrate measured."
                  : "Times are simulated with speeds that are computed from data sheets, not measured.";
}

std::string plan_data(const runtime::Job& job, const runtime::Capacity& capacity,
                      const runtime::MachineProfile& profile, std::span<const runtime::Span> spans,
                      const std::string& speeds) {
  const runtime::StepPlan& plan = job.plan;
  const auto& tasks = plan.tasks;
  Names names;
  const std::string task_names =
      list(tasks.size(), [&](std::size_t t) { return fmt::to_string(names.of(name_of(tasks[t], *job.model))); });
  // Of lanes that train: the host's and a checkpoint's tasks have no row, but a place in the list.
  const auto lane = [&](std::size_t t) {
    const auto at = static_cast<std::size_t>(tasks[t].lane);
    return at < runtime::kTrainingLanes ? fmt::to_string(at) : std::string("-1");
  };
  const std::string waits = list(tasks.size(), [&](std::size_t t) {
    return list(tasks[t].waits.size(), [&](std::size_t i) { return fmt::to_string(tasks[t].waits[i]); });
  });
  std::vector<std::size_t> first(plan.buffers.size(), tasks.size()), last(plan.buffers.size(), 0);
  for (std::size_t t = 0; t < tasks.size(); ++t)
    for (const runtime::Use& use : tasks[t].uses) {
      const auto b = static_cast<std::size_t>(use.buffer);
      first[b] = std::min(first[b], t);
      last[b] = std::max(last[b], t);
    }
  std::string buffers;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const runtime::Buffer& buffer = plan.buffers[b];
    if (buffer.bytes == 0 || (!buffer.whole_cycle && first[b] > last[b])) continue;
    buffers += fmt::format("{}[{},{},{},{},{},{},{},{}]", buffers.empty() ? "" : ",", names.of(buffer.name),
                           static_cast<int>(buffer.tier), static_cast<int>(buffer.kind), buffer.offset, buffer.bytes,
                           buffer.whole_cycle ? 0 : first[b], buffer.whole_cycle ? tasks.size() - 1 : last[b],
                           buffer.whole_cycle ? 1 : 0);
  }
  const runtime::BoundSeconds path = critical_path(plan, profile, spans);
  std::string bounds;
  for (std::size_t b = 0; b < path.size(); ++b)
    bounds += fmt::format("{}\"{}\":{:.4f}", b ? "," : "", runtime::kBoundWords[b], path[b] * 1e3);
  return fmt::format(
      "{{\"strata_plan\":1,\"model\":{},\"parameters\":{},\"ranks\":{},\"stage\":{},\"order\":\"{}\",\"fits\":{},"
      "\"step_ms\":{:.4f},"
      "\"sent_bytes\":{},\"speeds\":{},\"path\":{{{}}},\"tiers\":{},\"lanes\":{},\"names\":[{}],\"tasks\":{{\"lane\":{}"
      ","
      "\"name\":{},\"begin\":{},\"end\":{},\"waits\":{}}},\"buffers\":[{}]}}",
      json_string(job.model->family), job.model->parameters(), plan.ranks, job.recipe.zero.stage,
      runtime::order_name(plan), runtime::fits(plan, capacity), 1e3 * makespan_s(plan, spans), plan.comm_bytes.total(),
      json_string(speeds), bounds, tiers(plan, capacity),
      list(runtime::kTrainingLanes, [](std::size_t i) { return json_string(runtime::kLaneNames[i]); }), names.all(),
      list(tasks.size(), lane), task_names,
      list(spans.size(), [&](std::size_t t) { return microseconds(spans[t].begin); }),
      list(spans.size(), [&](std::size_t t) { return microseconds(spans[t].end); }), waits, buffers);
}

}  // namespace strata::launcher
