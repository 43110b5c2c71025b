#include "runtime/plan/draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "device/memory.h"

namespace strata::runtime {

Draft::Draft(const PlanRequest& r) : request(r), model(*r.model), element(size_of(r.shape.dtype)) {
  plan.ranks = r.ranks;
  plan.accumulation = r.accumulation;
  plan.device = r.shape.device;
  plan.tokens = r.shape.tokens();
  plan.dtype = r.shape.dtype;
  plan.fast = r.fast && r.accumulation > 1 && r.ranks > 1;  // else nothing is left to do locally
  plan.vertical = r.vertical;
  plan.forward_only = r.forward_only;
  plan.cyclic = !r.forward_only && r.placement.optimizer.tier != Tier::device;
  plan.placement = r.placement;
  plan.layout = make_layout(model, r.ranks, r.moments);
  plan.tile_bytes = r.tile_bytes;
}

ElementRange Draft::range_of(const Piece& piece) const {
  const auto parts = unit(piece.unit).parts();
  if (piece.part < 0) return {0, layout(piece.unit).padded};
  const auto part = static_cast<std::size_t>(piece.part);
  return {parts[part].begin, part + 1 == parts.size() ? layout(piece.unit).padded : parts[part].end};
}

std::string Draft::text_of(std::string_view what, const Piece& piece) const {
  const std::string& name = unit(piece.unit).name();
  return piece.part < 0 ? fmt::format("{} {}", what, name) : fmt::format("{} {}, part {}", what, name, piece.part);
}

int Draft::add_buffer(std::string name, Kind kind, Tier tier, std::size_t bytes, bool whole_cycle) {
  plan.buffers.push_back({std::move(name), kind, tier, aligned(bytes), whole_cycle});
  return static_cast<int>(plan.buffers.size()) - 1;
}

Task& Draft::add_task(TaskKind kind, LaneId lane, int unit, int micro_batch) {
  Task& task = plan.tasks.emplace_back();
  task.kind = kind;
  task.lane = lane;
  task.unit = unit;
  task.micro_batch = micro_batch;
  task.when = when;
  return task;
}

void Draft::use(Task& task, int buffer, Role role, Access access) {
  STRATA_CHECK(buffer >= 0);
  task.uses.push_back({buffer, role, access});
}

void Draft::use(Task& task, const Stretch& s, Role role, Access access) {
  STRATA_CHECK(s.buffer >= 0);
  task.uses.push_back({s.buffer, role, access, s.offset, s.bytes, s.own});
}

void Draft::move(std::span<const Stretch> from, std::span<const Stretch> to, int unit) {
  const Tier source = tier_of(from[0].buffer), target = tier_of(to[0].buffer);
  const auto kind_and_lane = [&]() -> std::pair<TaskKind, LaneId> {
    if (source == Tier::nvme) return {TaskKind::read, LaneId::disk_read};
    if (target == Tier::nvme) return {TaskKind::write, LaneId::disk_write};
    if (target == Tier::device) return {TaskKind::upload, LaneId::upload};
    return {TaskKind::download, LaneId::download};
  };
  const auto [kind, lane] = kind_and_lane();
  Task& task = add_task(kind, lane, unit, -1);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    STRATA_CHECK_EQ(from[i].bytes, to[i].bytes);
    use(task, from[i], Role::source, Access::read);
    use(task, to[i], Role::target, Access::write);
    bytes += from[i].bytes;
  }
  auto& [read, written] = plan.io_bytes;
  const auto amount = static_cast<double>(bytes);
  switch (kind) {
    case TaskKind::read:
      read[static_cast<std::size_t>(Tier::nvme)] += bytes;
      task.cost.read_bytes = amount;
      break;
    case TaskKind::write:
      written[static_cast<std::size_t>(Tier::nvme)] += bytes;
      task.cost.written_bytes = amount;
      break;
    default:
      (kind == TaskKind::upload ? read : written)[static_cast<std::size_t>(Tier::host)] += bytes;
      task.cost.host_bytes = amount;
  }
}

void Draft::hop(std::vector<Stretch>& stretches, Tier from, Tier to, int unit, std::string_view what, Kind kind) {
  std::vector<Stretch> sources, targets;
  for (Stretch& s : stretches) {
    if (tier_of(s.buffer) != from) continue;
    sources.push_back(s);
    s = {add_buffer(fmt::format("{} in {}", what, kTierNames[static_cast<std::size_t>(to)]), kind, to, s.bytes, false),
         0, s.bytes};
    targets.push_back(s);
  }
  if (!sources.empty()) move(sources, targets, unit);
}

std::vector<Stretch> Draft::bring(std::vector<Stretch> stretches, Tier to, int unit, std::string_view what, Kind kind) {
  STRATA_CHECK(to != Tier::nvme);
  hop(stretches, Tier::nvme, Tier::host, unit, what, to == Tier::host ? kind : Kind::staging);
  if (to == Tier::device)
    hop(stretches, Tier::host, Tier::device, unit, what, kind);
  else
    hop(stretches, Tier::device, Tier::host, unit, what, kind);
  return stretches;
}

void Draft::put(std::vector<Stretch> from, std::vector<Stretch> homes, int unit, std::string_view what) {
  // A stretch whose way is two steps long goes to host memory with those that end there.
  for (const auto& [source, target] : {std::pair{Tier::nvme, Tier::host}, std::pair{Tier::device, Tier::host},
                                       std::pair{Tier::host, Tier::device}, std::pair{Tier::host, Tier::nvme}}) {
    std::vector<Stretch> sources, targets;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (from[i].buffer == homes[i].buffer || tier_of(from[i].buffer) != source) continue;
      const Tier home = tier_of(homes[i].buffer);
      const bool passes = source == Tier::device && home == Tier::nvme;
      if (home != target && !passes) continue;
      sources.push_back(from[i]);
      from[i] =
          home == target
              ? homes[i]
              : Stretch{add_buffer(fmt::format("{} in host", what), Kind::staging, Tier::host, from[i].bytes, false), 0,
                        from[i].bytes};
      targets.push_back(from[i]);
    }
    if (!sources.empty()) move(sources, targets, unit);
  }
  for (std::size_t i = 0; i < from.size(); ++i) STRATA_CHECK_EQ(from[i].buffer, homes[i].buffer);
}

Draft::Pieces Draft::pieces_of(const ElementRange& range, std::size_t shard, int ranks) {
  const auto piece = [&](int rank) { return comm::ShardedRange{shard, range.begin, range.end}.owned(rank).bytes(); };
  // The first and the last rank that own some of it own a part of their shards, those between all of them, others none.
  const int first = static_cast<int>(range.begin / shard);
  const int last = range.size() > 0 ? static_cast<int>((range.end - 1) / shard) : first;
  const std::size_t ends[] = {piece(first), piece(last)};
  const bool all = first == 0 && last == ranks - 1;
  return {piece(0), all ? std::min(ends[0], ends[1]) : 0, last - first > 1 ? shard : std::max(ends[0], ends[1])};
}

void Draft::count_all_gather(Task& task, std::size_t size) {
  const std::size_t others = static_cast<std::size_t>(request.ranks - 1);
  const auto [of_rank0, least, most] = pieces_of({task.begin, task.end}, layout(task.unit).shard, request.ranks);
  plan.comm_bytes.all_gather += of_rank0 * size * others;
  task.cost.sent_bytes = static_cast<double>(most * size * others);
}

}  // namespace strata::runtime
