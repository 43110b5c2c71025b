#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "runtime/plan/layout/box.h"
#include "runtime/run/resume.h"
#include "runtime/weights/floats.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {
namespace {

// The part of one tensor's state that a rank needs, its place in the rank's part, and a block of an extent that holds
// some of it.
struct Need {
  std::size_t unit, tensor;  // the latter as an index into the ranges of the unit's pool
  StateKind kind;
  Box box;
  std::uint64_t begin, end;  // elements of the box
  std::size_t offset;        // the offset of `begin` in the rank's part, in bytes

  // Weights are rounded to the type that this run computes in; quantised ones stay as they are.
  bool weights() const { return kind == StateKind::master || kind == StateKind::frozen; }
  BoxRange range() const { return {box, begin, end}; }
};
struct Block {
  const Need* need;
  const Extent* extent;
  std::size_t index;
};

bool in_blocks(device::StorageFormat format) {
  return format == device::StorageFormat::block8 || is_nf4(format);
}

// The bytes [first, second) of an extent that cover a need, possibly with some more. If the format has blocks, both are
// of one box.
std::pair<std::uint64_t, std::uint64_t> bytes_for(const Need& need, const Extent& e) {
  if (in_blocks(e.format)) {
    const std::uint64_t begin = std::max(need.begin, e.begin), end = std::min(need.end, e.end);
    if (begin >= end) return {};
    return {stored_bytes(e.format, begin) - e.first_byte(), stored_bytes(e.format, end) - e.first_byte()};
  }
  std::uint64_t first = e.end, last = e.begin;
  for_common(e.range(), need.range(), [&](std::uint64_t at, std::uint64_t, std::uint64_t count) {
    first = std::min(first, at);
    last = at + count;
  });
  if (first >= last) return {};
  return {stored_bytes(e.format, first - e.begin), stored_bytes(e.format, last - e.begin)};
}

// Writes to the rank's state the part of a need that is in a block of an extent.
void write_block(Executor& executor, const StepPlan& plan, const Block& block, std::span<const std::byte> bytes) {
  const auto& [need, e, index] = block;
  const std::uint64_t at = e->first_byte() + index * kBlockBytes;  // offset in the box's state
  if (in_blocks(e->format)) {
    const std::uint64_t first = stored_bytes(e->format, need->begin);
    const std::uint64_t from = std::max(at, first);
    const std::uint64_t to = std::min(at + bytes.size(), stored_bytes(e->format, need->end));
    executor.storage().write_state(need->unit, need->kind, need->offset + (from - first),
                                   bytes.subspan(from - at, to - from));
    return;
  }
  const std::uint64_t size = stored_bytes(e->format, 1), begin = at / size;
  const BoxRange held{e->box, begin, begin + bytes.size() / size};
  const TensorRange& range = plan.layout.units[need->unit].pool(pool_of(need->kind)).ranges[need->tensor];
  for_common(held, need->range(), [&](std::uint64_t in_block, std::uint64_t in_need, std::uint64_t count) {
    const auto common = bytes.subspan((in_block - begin) * size, count * size);
    if (need->weights())
      store_weights(executor, plan, need->unit, pool_of(need->kind), range.begin + in_need,
                    floats_of(e->format, common));
    else
      executor.storage().write_state(need->unit, need->kind, need->offset + (in_need - need->begin) * size, common);
  });
}

std::vector<Need> needs_of(const Job& job, const Executor& executor, const Coordinates& rank) {
  std::vector<Need> out;
  for (std::size_t unit = 0; unit < job.plan.layout.units.size(); ++unit) {
    const bool owned = job.plan.own.has(static_cast<int>(unit));
    const UnitLayout& layout = job.plan.layout.units[unit];
    const auto parameters = job.model->units[unit]->parameters();
    const models::ElementRange held = executor.storage().held(unit, StateKind::parameters);
    const auto [part, part_end] = job.plan.parts_of(unit).piece(rank);
    const auto add = [&](const Pool& pool, StateKind kind, const models::ElementRange& wanted) {
      for (std::size_t r = 0; r < pool.ranges.size(); ++r) {
        const TensorRange& range = pool.ranges[r];
        const std::size_t begin = std::max(range.begin, wanted.begin), end = std::min(range.end, wanted.end);
        if (begin >= end) continue;
        const models::Parameter& parameter = parameters[range.parameter];
        const Need& need =
            out.emplace_back(unit, r, kind, range.box_of(parameter), begin - range.begin, end - range.begin, 0);
        if (kind == StateKind::quantised)
          out.back().offset = stored_bytes(job.plan.layout.quantised, begin - wanted.begin);
        else if (!need.weights())
          out.back().offset = layout.state_offset(kind, part, begin);
      }
    };
    for (const StateKind kind : kStateKinds) {
      const bool master = kind == StateKind::master;  // parameters are made from it, and they may cover more than the
                                                      // part; a copy has only parameters
      if (owned ? !executor.storage().has_state(kind) : !master || job.plan.state_buffers[unit].parameters < 0)
        continue;
      add(layout, kind, {master ? std::min(held.begin, part) : part, master ? std::max(held.end, part_end) : part_end});
    }
    for (const StateKind kind : {StateKind::frozen, StateKind::quantised})
      if (job.plan.state_buffers[unit].of(pool_of(kind)) >= 0)
        add(layout.pool(pool_of(kind)), kind, executor.storage().held(unit, kind));
  }
  return out;
}

}  // namespace

void load_state(const Checkpoint& checkpoint, const Job& job, Executor& executor, int rank, int threads,
                const Advance& advance) {
  require_same_tensors(checkpoint, *job.model);
  std::vector<Block> blocks;
  const std::vector<Need> needs = needs_of(job, executor, job.plan.mesh().at(rank));
  for (const Need& need : needs) {
    if (is_frozen(need.kind) && !checkpoint.manifest().base_hash.empty()) continue;
    const TensorRange& range = job.plan.layout.units[need.unit].pool(pool_of(need.kind)).ranges[need.tensor];
    const std::string& tensor = job.model->units[need.unit]->parameters()[range.parameter].name;
    const auto extents = checkpoint.extents(name_of(need.kind), tensor);
    const bool frozen = need.kind == StateKind::frozen && !extents.empty();
    device::StorageFormat format = need.weights()                      ? device::StorageFormat::fp32
                                   : need.kind == StateKind::quantised ? job.plan.layout.quantised
                                                                       : range.moments;
    if (frozen && extents[0].format != device::StorageFormat::block8 && !is_nf4(extents[0].format))
      format = extents[0].format;
    if (extents.empty() || extents[0].format != format)
      fail(Exit::usage, "{} has {} of {} {}, but this run keeps it in {}: use the optimizer.* keys of its recipe",
           checkpoint.path().string(), name_of(need.kind), tensor,
           extents.empty() ? "not at all" : fmt::format("in {}", stored_dtype(extents[0].format)),
           stored_dtype(format));
    for (const Extent& e : extents) {
      if (in_blocks(format) && e.box != need.box) {
        if (e.box.shape != need.box.shape || e.box.overlaps(need.box))
          fail(Exit::usage,
               "{} has {} of {} in blocks of a tensor that was split differently: use the parallel.tensor_shards of "
               "its recipe",
               checkpoint.path().string(), name_of(need.kind), tensor);
        continue;
      }
      const auto [first, last] = bytes_for(need, e);
      for (std::size_t block = first / kBlockBytes; block * kBlockBytes < last; ++block)
        blocks.push_back({&need, &e, block});
    }
  }
  const auto prefetch = [&](std::size_t i) { checkpoint.prefetch_block(*blocks[i].extent, blocks[i].index); };
  ProgressCounter progress(advance, blocks.size() * kBlockBytes);
  parallel_reads(blocks.size(), threads, prefetch, [&](std::size_t i) {
    progress.add(kBlockBytes);
    std::vector<std::byte> buffer(kBlockBytes);
    write_block(executor, job.plan, blocks[i], checkpoint.read_block(*blocks[i].extent, blocks[i].index, buffer));
  });
}

}  // namespace strata::runtime
