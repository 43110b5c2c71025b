#include "runtime/plan/draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "device/memory.h"

namespace strata::runtime {

Draft::Draft(const PlanRequest& r) : request(r), model(*r.model), computed(format_of(r.shape.dtype)) {
  plan.accumulation = r.accumulation;
  plan.stage = r.stage;
  plan.pieces = r.pieces.empty() ? std::vector<UnitRange>{{0, last()}} : r.pieces;
  plan.own = units_of_stage(plan.pieces, r.mesh.stages, r.stage);
  plan.device = r.shape.device;
  plan.tokens = r.shape.tokens();
  plan.rows = r.shape.own_rows().size();
  plan.dtype = r.shape.dtype;
  plan.reduce_group = r.reduce_group;
  plan.fast = r.fast && r.accumulation > 1 && r.mesh.data() > 1;  // otherwise there is nothing to sum locally
  plan.vertical = r.vertical;
  plan.forward_only = r.forward_only;
  plan.cyclic = !r.forward_only && r.placement.optimizer.tier != Tier::device;
  plan.placement = r.placement;
  plan.layout = make_layout(model, mesh_of(r.placement, r.mesh, r.reduce_group), r.moments);
  plan.tile_bytes = r.tile_bytes;
}

const comm::Levels& Draft::levels(Peers peers) const {
  auto& levels = levels_[static_cast<std::size_t>(peers)];
  if (!levels) levels.emplace(group_of(plan, peers, 0), plan.mesh().nodes());
  return *levels;
}

bool Draft::copies(int unit, PoolKind pool) const {
  const auto& sharers = layout(unit).sharers_of(pool);
  return !owns(unit) && std::any_of(sharers.begin(), sharers.end(), [&](int sharer) { return owns(sharer); });
}

int Draft::stage_of(int unit) const {
  const auto has = [&](const UnitRange& piece) { return piece.has(unit); };
  const auto found = std::ranges::find_if(plan.pieces, has);
  return static_cast<int>(found - plan.pieces.begin()) % request.mesh.stages;
}

std::vector<int> Draft::copying_stages(int unit, PoolKind pool) const {
  std::vector<int> out;
  for (const int sharer : layout(unit).sharers_of(pool))
    if (const int stage = stage_of(sharer);
        stage != stage_of(unit) && std::find(out.begin(), out.end(), stage) == out.end())
      out.push_back(stage);
  std::sort(out.begin(), out.end());
  return out;
}

ElementRange Draft::range_of(const UnitPart& which) const {
  const Pool& pool = layout(which.unit).pool(which.pool);
  if (which.part < 0) return {0, pool.padded()};
  const models::Part& part = unit(which.unit).parts()[static_cast<std::size_t>(which.part)];
  const ElementRange range = part.in(which.pool);
  return {range.begin, range.size() > 0 && range.end == pool.size ? pool.padded() : range.end};
}

std::string Draft::text_of(std::string_view what, const UnitPart& which) const {
  const std::string& name = unit(which.unit).name();
  const std::string of_part = which.part < 0 ? "" : fmt::format(", part {}", which.part);
  constexpr std::array<std::string_view, kPools.size()> kPoolTexts = {"", ", frozen", ", quantised"};
  return fmt::format("{} {}{}{}", what, name, of_part, kPoolTexts[static_cast<std::size_t>(which.pool)]);
}

int Draft::add_buffer(std::string name, Kind kind, Tier tier, std::size_t bytes, bool persistent) {
  plan.buffers.push_back({std::move(name), kind, tier, aligned(bytes), persistent});
  return static_cast<int>(plan.buffers.size()) - 1;
}

Task& Draft::add_task(TaskKind kind, LaneId lane, int unit, int micro_batch) {
  Task& task = plan.tasks.emplace_back();
  task.kind = kind;
  task.lane = lane;
  task.unit = unit;
  task.micro_batch = micro_batch;
  task.boundary = traits_of(kind).boundary;
  task.when = when;
  return task;
}

Task& Draft::add_task(TaskKind kind, LaneId lane, const UnitPart& which, const ElementRange& elements,
                      int micro_batch) {
  Task& task = add_task(kind, lane, which.unit, micro_batch);
  task.part = which.part;
  task.pool = which.pool;
  task.begin = elements.begin;
  task.end = elements.end;
  return task;
}

void Draft::use(Task& task, int buffer, Role role, Access access) {
  use(task, Slice{buffer}, role, access);
}

void Draft::use(Task& task, const Slice& s, Role role, Access access) {
  STRATA_CHECK(s.buffer >= 0);
  task.uses.push_back({s.buffer, role, access, s.offset, s.bytes, s.own});
}

void Draft::use(Task& task, const OutputBuffer& output, Role role) {
  use(task, output.buffer, role, output.access());
}

void Draft::use_if_any(Task& task, int buffer, Role role, Access access) {
  if (buffer >= 0) use(task, buffer, role, access);
}

void Draft::use_if_any(Task& task, const OutputBuffer& output, Role role) {
  if (output.buffer >= 0) use(task, output, role);
}

}  // namespace strata::runtime
