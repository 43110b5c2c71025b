#include "runtime/plan/layout/layout.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace strata::runtime {
namespace {

using device::StorageFormat;

StorageFormat format_of(const models::Parameter& parameter, StorageFormat wanted) {
  constexpr std::size_t kSmall = 4096;
  const bool stays = parameter.fp32_moments || parameter.shape.size() < 2 || parameter.size() < kSmall;
  return wanted == StorageFormat::block8 && stays ? StorageFormat::fp32 : wanted;
}

// A virtual shard's piece of a tensor, with the cut dimension split into its segments; empty if the tensor is whole.
std::optional<Box> box_of(const models::Parameter& p, std::size_t number) {
  if (p.slice.shards == 1) return {};
  Box box = Box::full({p.shape.begin(), p.shape.end()});
  auto d = static_cast<std::ptrdiff_t>(p.slice.dimension);
  if (const std::size_t segments = p.slice.segments; segments > 1) {
    for (auto* numbers : {&box.shape, &box.size}) {
      (*numbers)[p.slice.dimension] /= segments;
      numbers->insert(numbers->begin() + d, segments);
    }
    box.offset.insert(box.offset.begin() + d, 0);
    ++d;
  }
  const auto at = static_cast<std::size_t>(d);
  const models::Piece piece = p.piece(number);
  const std::uint64_t all = box.size[at], part = (all + piece.shards - 1) / piece.shards;
  box.offset[at] = p.piece_size(number) == 0 ? all : piece.shard * part;
  box.size[at] = std::min(part, all - box.offset[at]);
  return box;
}

std::size_t uncut_elements(const Pool& pool) {
  const auto cut = std::ranges::find_if(pool.ranges, [](const TensorRange& range) { return range.box.has_value(); });
  return cut == pool.ranges.end() ? pool.padded() : cut->begin;
}

}  // namespace

Layout make_layout(const models::Model& model, const Mesh& mesh, StorageFormat moments) {
  Layout layout{mesh, {}, false, model.quantised, model.quantised_as};
  // Elements that the trained and the frozen pool of each unit must hold. A shared range is rounded up to whole blocks,
  // so it may end after the holder's own last element.
  std::vector<std::array<std::size_t, 2>> used;
  for (const auto& unit : model.units) used.push_back({unit->size(), unit->size(PoolKind::frozen)});
  for (const auto& unit : model.units)
    if (const auto& shared = unit->shared()) {
      std::size_t& of_pool = used[shared->unit][shared->frozen ? 1 : 0];
      of_pool = std::max(of_pool, shared->elements.end);
    }
  const auto cut = [&](std::size_t elements, std::size_t alignment = kShardAlignment) -> Cut {
    const std::size_t multiple = alignment * static_cast<std::size_t>(mesh.data());
    return {mesh.data(), 1, (elements + multiple - 1) / multiple * multiple};
  };
  for (const auto& unit : model.units) {
    const std::size_t number = layout.units.size();
    UnitLayout& u = layout.units.emplace_back();
    u.size = unit->size();
    u.shards = cut(used[number][0]);
    u.frozen.size = unit->size(PoolKind::frozen);
    u.frozen.shards = cut(used[number][1]);
    u.quantised.size = unit->size(PoolKind::quantised);
    u.quantised.shards = cut(u.quantised.size, kQuantisedAlignment);
    u.moments = moments;
    const auto parameters = unit->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const models::Parameter& p = parameters[i];
      for (std::size_t piece = 0; piece < p.pieces(); ++piece) {
        const std::size_t begin = models::place_in_pool(p.offset_of(piece));
        u.pool(p.pool()).ranges.push_back({begin, begin + p.piece_size(piece), i, p.decay, format_of(p, moments),
                                           box_of(p, piece), p.piece(piece), begin + p.piece_capacity()});
      }
      layout.adapted = layout.adapted || p.of_adapter;
    }
    for (const PoolKind pool : kPools) {
      std::ranges::sort(u.pool(pool).ranges, {}, &TensorRange::begin);
      u.pool(pool).uncut = uncut_elements(u.pool(pool));
    }
    if (const auto& shared = unit->shared()) {
      STRATA_CHECK_LT(shared->unit, number);  // the holder's gradient needs its sharers', so its backward comes later
      STRATA_CHECK_EQ(shared->elements.begin % kShardAlignment, 0u);
      STRATA_CHECK_EQ(shared->elements.end % kShardAlignment, 0u);
      u.shared = {static_cast<int>(shared->unit), shared->elements, shared->frozen};
      UnitLayout& holder = layout.units[shared->unit];
      (shared->frozen ? holder.frozen_sharers : holder.sharers).push_back(static_cast<int>(number));
    }
  }
  return layout;
}

std::size_t UnitLayout::moment_bytes(std::size_t begin, std::size_t end) const {
  constexpr std::size_t kBlock = device::kMomentBlock;
  STRATA_CHECK_EQ(begin % kBlock, 0u);
  std::size_t bytes = 0, at = begin;
  const auto take = [&](std::size_t to, StorageFormat format) {
    if (to <= at) return;
    bytes += device::stored_bytes(format, to - at);
    at = to;
  };
  for (const TensorRange& range : ranges) {
    take(std::min(range.begin, end), moments);
    take(std::min((std::max(range.end, range.reserved_end) + kBlock - 1) / kBlock * kBlock, end), range.moments);
  }
  take(end, moments);
  return bytes;
}

}  // namespace strata::runtime
