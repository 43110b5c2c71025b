#include "runtime/weights/weights.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "comm/agreement.h"
#include "runtime/weights/quantised_weights.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kChunk = 1u << 18;  // elements per read: a checkpoint's block
static_assert(kChunk % kQuantisedAlignment == 0);

}  // namespace

void store_weights(Executor& executor, const StepPlan& plan, std::size_t unit, PoolKind pool, std::size_t begin,
                   std::span<const float> values) {
  // Calls f(values, at) with the values that this rank holds and their offset in the held part.
  const auto for_held = [&](StateKind kind, auto&& f) {
    const models::ElementRange held = executor.storage().held(unit, kind);
    const std::size_t from = std::max(begin, held.begin), to = std::min(begin + values.size(), held.end);
    if (from < to) f(values.subspan(from - begin, to - from), from - held.begin);
  };
  STRATA_CHECK(pool != PoolKind::quantised);
  const bool frozen = pool == PoolKind::frozen;
  const StateKind parameters = parameters_in(pool);
  for_held(parameters, [&](std::span<const float> mine, std::size_t at) {
    device::visit(plan.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> rounded(mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) rounded[i] = device::from_float<T>(mine[i]);
      executor.storage().write_state(unit, parameters, at * sizeof(T), std::as_bytes(std::span(rounded)));
    });
  });
  if (frozen || plan.state_buffers[unit].master < 0) return;
  for_held(StateKind::master, [&](std::span<const float> mine, std::size_t at) {
    executor.storage().write_state(unit, StateKind::master, device::fp32_bytes(at), std::as_bytes(mine));
  });
}

namespace {

// Adds to the hash of a base the frozen tensors of this stage that are cut into virtual shards. The hash has blocks of
// whole tensors, so each of the stage's ranks reads some blocks once more.
void hash_cut_tensors(const StepPlan& plan, const WeightSource& source, const Coordinates& rank, BaseHash& hash) {
  const Mesh& mesh = plan.mesh();
  const auto ranks = static_cast<std::size_t>(mesh.ranks_per_stage());
  const auto own = static_cast<std::size_t>(mesh.place_in_stage(rank));
  constexpr std::size_t kBlock = models::kParameterAlignment, kAtOnce = std::size_t{1} << 20;
  std::vector<float> values;
  for (const int unit : plan.own.all()) {
    std::map<std::size_t, std::size_t> cut;  // parameter, elements
    for (const PoolKind pool : {PoolKind::frozen, PoolKind::quantised})
      for (const TensorRange& range : plan.layout.units[static_cast<std::size_t>(unit)].pool(pool).ranges)
        if (range.is_cut()) cut[range.parameter] = range.box->of_tensor();
    for (const auto& [parameter, size] : cut) {
      const std::size_t blocks = (size + kBlock - 1) / kBlock;
      const std::size_t end = std::min(size, blocks * (own + 1) / ranks * kBlock);
      for (std::size_t at = blocks * own / ranks * kBlock; at < end; at += kAtOnce) {
        values.resize(std::min(kAtOnce, end - at));
        source.read(static_cast<std::size_t>(unit), parameter, at, values);
        hash.add(static_cast<std::size_t>(unit), parameter, at, values);
      }
    }
  }
}

void load_weights(Executor& executor, const StepPlan& plan, const WeightSource& source, const ScaleOffsets& offsets,
                  int threads, const Advance& advance, const LoadOptions& options) {
  struct Chunk {
    std::size_t unit;
    PoolKind pool;
    std::size_t begin, end;  // elements
  };
  std::vector<Chunk> chunks;
  for (std::size_t unit = 0; unit < plan.layout.units.size(); ++unit)
    for (const PoolKind pool : kPools) {
      if (plan.state_buffers[unit].of(pool) < 0) continue;  // another stage's
      if (pool == PoolKind::trained && options.frozen_alone) continue;
      const auto held = executor.storage().held(unit, parameters_in(pool));
      for (std::size_t begin = held.begin; begin < held.end; begin += kChunk)
        chunks.push_back({unit, pool, begin, std::min(held.end, begin + kChunk)});
    }
  // Calls f(range, from, to) for the parameter ranges in chunk i.
  const auto for_ranges = [&](std::size_t i, auto&& f) {
    const Chunk& c = chunks[i];
    for (const TensorRange& range : plan.layout.units[c.unit].pool(c.pool).ranges) {
      const std::size_t from = std::max(range.begin, c.begin), to = std::min(range.end, c.end);
      if (from < to) f(range, from, to);
    }
  };
  const auto prefetch = [&](std::size_t i) {
    for_ranges(i, [&](const TensorRange& range, std::size_t from, std::size_t to) {
      const std::size_t first = range.piece.full_index(from - range.begin),
                        last = range.piece.full_index(to - 1 - range.begin);
      source.prefetch(chunks[i].unit, range.parameter, first, last + 1 - first);
    });
  };
  std::uint64_t bytes = 0;
  for (const Chunk& c : chunks) bytes += device::fp32_bytes(c.end - c.begin);
  ProgressCounter progress(advance, bytes);
  parallel_reads(chunks.size(), threads, prefetch, [&](std::size_t i) {
    const Chunk& c = chunks[i];
    progress.add(device::fp32_bytes(c.end - c.begin));
    if (c.pool == PoolKind::quantised)
      return quantise_weights(executor, plan, source, offsets[c.unit], c.unit, {c.begin, c.end}, options);
    std::vector<float> values(c.end - c.begin);  // zeros between the parameters
    for_ranges(i, [&](const TensorRange& range, std::size_t from, std::size_t to) {
      read_piece(source, c.unit, range.parameter, range.piece, from - range.begin,
                 {&values[from - c.begin], to - from});
      // Tensors that are cut are hashed as a whole, below. Ranks that share each layer have equal copies of the others.
      const bool counts = !range.is_cut() && options.rank.tensor == 0;
      if (c.pool == PoolKind::trained || !options.base || !plan.own.has(static_cast<int>(c.unit)) || !counts) return;
      const models::ElementRange own = plan.layout.units[c.unit].pool(c.pool).shards.piece_of({from, to}, options.rank);
      if (own.begin < own.end)
        options.base->add(c.unit, range.parameter, own.begin - range.begin, {&values[own.begin - c.begin], own.size()});
    });
    store_weights(executor, plan, c.unit, c.pool, c.begin, values);
  });
}

}  // namespace

std::string load_same_weights(Executor& executor, const models::Model& model, const StepPlan& plan,
                              const WeightSource& source, int threads, comm::World& world, const Advance& advance,
                              bool frozen_alone) {
  const bool alone = world.size() == 1;
  if (!alone) comm::require_same(source.fingerprints(), world);
  const ScaleOffsets offsets = scale_offsets(plan, source, threads, world);
  BaseHash base(model);
  comm::agree(world, [&] {
    load_weights(executor, plan, source, offsets, threads, advance,
                 {frozen_alone, plan.layout.adapted ? &base : nullptr, plan.mesh().at(world.rank())});
  });
  // If each rank reads only its shards or its stage's units, no two ranks need have read the same.
  const bool own_part = plan.sharded_parameters() || plan.mesh().stages * plan.mesh().tensor > 1;
  if (!alone && !own_part && !frozen_alone) comm::require_same(source.fingerprints_as_read(), world);
  if (!plan.layout.adapted) return {};
  comm::agree(world, [&] { hash_cut_tensors(plan, source, plan.mesh().at(world.rank()), base); });
  std::string hash = base.over_ranks(world);
  comm::agree(world, [&] { require_base(source, hash); });
  return hash;
}

}  // namespace strata::runtime
