#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/error.h"
#include "runtime/weights/floats.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {
namespace {

using models::ElementRange;

constexpr std::size_t kAtOnce = 256 * kShardAlignment;  // elements per read
// Blocks of quantised pools are numbered after all others.
constexpr std::size_t kFirstQuantised = std::size_t{1} << 39;

std::uint64_t hex_of(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

std::size_t round_up_to_block(std::size_t elements, std::size_t of_block = kShardAlignment) {
  return (elements + of_block - 1) / of_block * of_block;
}

// Quantised pools have blocks of a different size.
std::size_t block_of(PoolKind pool) {
  return pool == PoolKind::quantised ? kQuantisedAlignment : kShardAlignment;
}
std::size_t first_block_of(PoolKind pool) {
  return pool == PoolKind::quantised ? kFirstQuantised : 0;
}

// Elements before element `at` in the bytes that hold it: nf4 is read in complete blocks, with one of which each rank's
// part of a pool begins.
std::size_t before_in_block(device::StorageFormat format, std::size_t at) {
  return is_nf4(format) ? at % device::kNf4Block : 0;
}

// The first place from `at` on where a tensor may begin.
std::size_t align_parameter(std::size_t at, std::size_t alignment = models::kParameterAlignment) {
  return round_up_to_block(at, alignment);
}

// The sum of the hashes of blocks; each block is added by one rank.
class BlockSum {
 public:
  void add(std::size_t unit, std::size_t block, const float* values) {
    add(unit, block, std::as_bytes(std::span(values, kShardAlignment)));
  }
  void add(std::size_t unit, std::size_t block, std::span<const std::byte> values) {
    const std::uint64_t place = std::uint64_t{unit} << 40 | block;
    const XXH128_hash_t h = XXH3_128bits_withSeed(values.data(), values.size(), place);
    low_ += h.low64;
    high_ += h.high64;
  }
  void add(std::string_view text) {
    high_ += hex_of(text.substr(0, 16));
    low_ += hex_of(text.substr(16));
  }
  std::string text() const { return fmt::format("{:016x}{:016x}", high_, low_); }

 private:
  std::uint64_t low_ = 0, high_ = 0;
};

// Where a tensor lies in its pool, and where it would begin in its unit if nothing were frozen.
struct Place {
  PoolKind pool;
  std::size_t begin;
  ElementRange in_pool;

  std::size_t end() const { return begin + in_pool.size(); }
};

std::vector<Place> places_of(const UnitLayout& unit) {
  std::map<std::size_t, Place> by_parameter;
  for (const PoolKind pool : kPools)
    for (const TensorRange& range : unit.pool(pool).ranges)
      by_parameter[range.parameter] = {pool, 0, {range.begin, range.end}};
  std::vector<Place> out;
  std::size_t at = 0;
  for (auto& [parameter, place] : by_parameter) {
    place.begin = at;
    at = align_parameter(place.end());
    out.push_back(place);
  }
  return out;
}

class Hasher {
 public:
  Hasher(const Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance)
      : storage_(executor.storage()),
        plan_(plan),
        world_(world),
        rank_(plan.mesh().at(world.rank())),
        progress_(advance, bytes_of(plan)) {}

  std::string hash() {
    for (std::size_t unit = 0; unit < plan_.layout.units.size(); ++unit)
      if (is_cut(unit, hashed_pools()))
        add_cut(unit, hashed_pools(), false);
      else if (plan_.layout.adapted || !plan_.layout.units[unit].has_frozen())
        add_trained(unit);
      else
        add_mixed(unit);
    return combined();
  }
  // Hashes the frozen values as they are stored.
  std::string base_hash() {
    for (std::size_t unit = 0; unit < plan_.layout.units.size(); ++unit)
      for (const PoolKind& pool : {PoolKind::frozen, PoolKind::quantised})
        if (is_cut(unit, {&pool, 1}))
          add_cut(unit, {&pool, 1}, true);
        else
          add_frozen(unit, pool);
    return combined();
  }

 private:
  std::string combined() {
    BlockSum all;
    for (const std::string& text : world_.exchange(sum_.text())) all.add(text);
    return all.text();
  }
  static std::uint64_t bytes_of(const StepPlan& plan) {
    std::uint64_t bytes = 0;
    for (const UnitLayout& unit : plan.layout.units)
      for (const PoolKind pool : kPools) bytes += device::fp32_bytes(unit.pool(pool).shard());
    return bytes;
  }

  // If all ranks that share each layer have all of a unit, the first of them adds it.
  bool owns(std::size_t unit) const { return rank_.tensor == 0 && plan_.own.has(static_cast<int>(unit)); }

  // The stored bytes that hold elements [begin, end) of a frozen pool.
  std::vector<std::byte> read_stored(std::size_t unit, PoolKind pool, const ElementRange& range) {
    const StateKind kind = parameters_in(pool);
    const device::StorageFormat format = plan_.stored_in(pool);
    const std::size_t at = range.begin - storage_.held(unit, kind).begin, before = before_in_block(format, range.begin);
    std::vector<std::byte> bytes(stored_bytes(format, before + range.size()));
    storage_.read_state(unit, kind, stored_bytes(format, at - before), bytes);
    progress_.add(device::fp32_bytes(range.size()));
    return bytes;
  }
  void read(std::size_t unit, PoolKind pool, std::size_t begin, std::span<float> out) {
    if (pool == PoolKind::trained) {
      const std::size_t at = begin - storage_.held(unit, StateKind::master).begin;
      storage_.read_state(unit, StateKind::master, device::fp32_bytes(at), std::as_writable_bytes(out));
      progress_.add(out.size_bytes());
      return;
    }
    const device::StorageFormat format = plan_.stored_in(pool);
    const std::vector<float> values = floats_of(format, read_stored(unit, pool, {begin, begin + out.size()}));
    std::ranges::copy(std::span(values).subspan(before_in_block(format, begin), out.size()), out.begin());
  }

  void add_trained(std::size_t unit) {
    if (!owns(unit)) return;
    const UnitLayout& u = plan_.layout.units[unit];
    const auto [begin, shard_end] = u.shards.piece(rank_);
    // Blocks past the unit's size are padding, whose amount depends on the number of ranks.
    const std::size_t end = std::min(shard_end, round_up_to_block(u.size));
    std::vector<float> values(kAtOnce);
    for (std::size_t at = begin; at < end; at += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, end - at);
      read(unit, PoolKind::trained, at, std::span(values).first(n));
      for (std::size_t block = 0; block < n; block += kShardAlignment)
        sum_.add(unit, (at + block) / kShardAlignment, &values[block]);
    }
  }

  void add_frozen(std::size_t unit, PoolKind kind) {
    if (!owns(unit)) return;
    const std::size_t of_block = block_of(kind);
    const Pool& pool = plan_.layout.units[unit].pool(kind);
    const device::StorageFormat format = plan_.stored_in(kind);
    const auto [begin, shard_end] = pool.shards.piece(rank_);
    const std::size_t end = std::min(shard_end, round_up_to_block(pool.size, of_block));
    const std::size_t block_bytes = stored_bytes(format, of_block);
    std::vector<std::byte> values(stored_bytes(format, kAtOnce));
    for (std::size_t at = begin; at < end; at += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, end - at);
      const auto some = std::span(values).first(stored_bytes(format, n));
      const std::size_t held = storage_.held(unit, parameters_in(kind)).begin;
      storage_.read_state(unit, parameters_in(kind), stored_bytes(format, at - held), some);
      for (std::size_t block = 0; block < n / of_block; ++block)
        sum_.add(unit, first_block_of(kind) + at / of_block + block, some.subspan(block * block_bytes, block_bytes));
      progress_.add(some.size());
    }
  }

  // Adds a unit that is partly frozen. Blocks that several ranks share go to all ranks in parts: at most one per tensor
  // and rank, because only blocks at shard boundaries are shared.
  void add_mixed(std::size_t unit) {
    const std::vector<Place> places = places_of(plan_.layout.units[unit]);
    const std::size_t end = round_up_to_block(places.back().end());
    std::string parts;
    std::vector<float> values(std::min(kAtOnce, end));
    for (std::size_t at = 0; at < end && owns(unit); at += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, end - at);
      std::fill_n(values.begin(), n, 0.0f);
      std::vector<std::size_t> here(n / kShardAlignment), own(here.size());  // elements of each block
      std::vector<ElementRange> ranges;                                      // this rank's
      for (const Place& place : places) {
        const ElementRange mine = own_of(unit, place);
        for_blocks(at, n, {place.begin, place.end()},
                   [&](std::size_t block, std::size_t count) { here[block] += count; });
        for_blocks(at, n, mine, [&](std::size_t block, std::size_t count) { own[block] += count; });
        const ElementRange now{std::max(mine.begin, at), std::min(mine.end, at + n)};
        if (now.begin >= now.end) continue;
        ranges.push_back(now);
        read(unit, place.pool, place.in_pool.begin + now.begin - place.begin,
             std::span(values).subspan(now.begin - at, now.size()));
      }
      for (std::size_t block = 0; block < here.size(); ++block) {
        if (own[block] == 0) continue;
        const std::size_t first = at + block * kShardAlignment;
        if (own[block] == here[block])
          sum_.add(unit, first / kShardAlignment, &values[first - at]);
        else
          for (const ElementRange& s : ranges)
            append(parts, values, at, {std::max(s.begin, first), std::min(s.end, first + kShardAlignment)});
      }
    }
    if (plan_.ranks() > 1) add_shared_blocks(unit, world_.exchange(parts));
  }

  // The weights of a model with an adapter are the adapter's.
  std::span<const PoolKind> hashed_pools() const { return std::span(kPools).first(plan_.layout.adapted ? 1 : 3); }
  bool is_cut(std::size_t unit, std::span<const PoolKind> pools) const {
    const UnitLayout& layout = plan_.layout.units[unit];
    return std::ranges::any_of(pools, [&](PoolKind pool) {
      return std::ranges::any_of(layout.pool(pool).ranges, [](const TensorRange& range) { return range.is_cut(); });
    });
  }
  // A tensor of a unit with virtual shards: its place if all tensors were whole, and the places of its pieces in it.
  struct Tensor {
    std::size_t begin = 0, size = 0;
    models::Piece piece = {};  // any shard's

    models::Piece of_shard(std::size_t shard) const { return {shard, piece.shards, piece.length}; }
  };
  // By parameter. The result is the same on ranks that hold other shards.
  std::map<std::size_t, Tensor> tensors_of(std::size_t unit, std::span<const PoolKind> pools) const {
    std::map<std::size_t, Tensor> tensors;
    for (const PoolKind pool : pools)
      for (const TensorRange& range : plan_.layout.units[unit].pool(pool).ranges)
        tensors[range.parameter] = {0, range.box ? range.box->of_tensor() : range.end - range.begin, range.piece};
    std::size_t end = 0;
    for (auto& [parameter, tensor] : tensors) {
      tensor.begin = align_parameter(end, models::alignment_of(pools[0]));
      end = tensor.begin + tensor.size;
    }
    return tensors;
  }
  // A range of one tensor's piece, as ranks send it to each other. The bytes that hold it follow, of which the first
  // `before` elements belong to another range.
  struct Sent {
    std::uint64_t parameter, shard, begin, count, before;
  };
  // This rank's share of elements [at, at + n) of the unit, counted with whole tensors. If ranks share each layer, the
  // first of them sends the elements that all of them have.
  std::string own_elements(std::size_t unit, std::span<const PoolKind> pools, std::map<std::size_t, Tensor>& tensors,
                           bool as_stored, std::size_t at, std::size_t n) {
    std::string own;
    const auto add = [&](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      own.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    if (!plan_.own.has(static_cast<int>(unit))) return own;
    for (const PoolKind pool : pools)
      for (const TensorRange& range : plan_.layout.units[unit].pool(pool).ranges) {
        if ((!range.is_cut() && rank_.tensor > 0) || range.begin == range.end) continue;
        const Tensor& tensor = tensors[range.parameter];
        const auto before = [&](std::size_t place) {
          return range.piece.before(std::min(std::max(place, tensor.begin) - tensor.begin, tensor.size));
        };
        const ElementRange mine = plan_.layout.units[unit].pool(pool).shards.piece_of(
            {range.begin + before(at), range.begin + before(at + n)}, rank_);
        if (mine.begin >= mine.end) continue;
        const std::size_t skipped = as_stored ? before_in_block(plan_.stored_in(pool), mine.begin) : 0;
        add(std::array{Sent{range.parameter, range.piece.shard, mine.begin - range.begin, mine.size(), skipped}});
        if (as_stored) {
          add(read_stored(unit, pool, mine));
        } else {
          std::vector<float> values(mine.size());
          read(unit, pool, mine.begin, values);
          add(values);
        }
      }
    return own;
  }
  // Adds a unit with tensors in virtual shards, in the layout of whole tensors: ranks exchange the parts that they hold
  // of a range of it, and each adds some of its blocks. A base (`as_stored`, one pool) is hashed as it is stored.
  void add_cut(std::size_t unit, std::span<const PoolKind> pools, bool as_stored) {
    const device::StorageFormat format = as_stored ? plan_.stored_in(pools[0]) : device::StorageFormat::fp32;
    const std::size_t of_block = block_of(pools[0]), block_bytes = stored_bytes(format, of_block);
    std::map<std::size_t, Tensor> tensors = tensors_of(unit, pools);
    const std::size_t end = round_up_to_block(tensors.rbegin()->second.begin + tensors.rbegin()->second.size, of_block);
    const auto ranks = static_cast<std::size_t>(plan_.ranks());
    std::vector<std::byte> values(stored_bytes(format, std::min(kAtOnce, end)));
    for (std::size_t at = 0; at < end; at += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, end - at);
      const std::string own = own_elements(unit, pools, tensors, as_stored, at, n);
      std::ranges::fill(values, std::byte{0});
      for (const std::string& part : ranks > 1 ? world_.exchange(own) : std::vector<std::string>{own})
        for (std::size_t from = 0; from < part.size();) {
          Sent sent;
          std::memcpy(&sent, part.data() + from, sizeof sent);
          from += sizeof sent;
          const auto bytes =
              std::as_bytes(std::span(part)).subspan(from, stored_bytes(format, sent.before + sent.count));
          const Tensor& tensor = tensors[sent.parameter];
          tensor.of_shard(sent.shard)
              .for_contiguous(sent.begin, sent.begin + sent.count,
                              [&](std::size_t first, std::size_t full_index, std::size_t count) {
                                copy_elements(format, bytes, sent.before + first - sent.begin, values,
                                              tensor.begin + full_index - at, count);
                              });
          from += bytes.size();
        }
      for (std::size_t block = 0; block < n / of_block; ++block)
        if (block % ranks == static_cast<std::size_t>(world_.rank()))
          sum_.add(unit, first_block_of(pools[0]) + at / of_block + block,
                   std::span(values).subspan(block * block_bytes, block_bytes));
    }
  }

  // The range of a tensor that this rank adds, in the layout without frozen pools.
  ElementRange own_of(std::size_t unit, const Place& place) const {
    const Cut& shards = plan_.layout.units[unit].pool(place.pool).shards;
    const ElementRange own = shards.piece_of(place.in_pool, rank_);
    return {place.begin + own.begin - place.in_pool.begin, place.begin + own.end - place.in_pool.begin};
  }
  template <typename F>
  static void for_blocks(std::size_t at, std::size_t n, const ElementRange& range, F&& f) {
    const std::size_t from = std::max(range.begin, at), to = std::min(range.end, at + n);
    for (std::size_t i = from; i < to;) {
      const std::size_t block = (i - at) / kShardAlignment, stop = std::min(to, at + (block + 1) * kShardAlignment);
      f(block, stop - i);
      i = stop;
    }
  }
  // Appends the first index, count and values of elements of a block.
  static void append(std::string& parts, const std::vector<float>& values, std::size_t at, const ElementRange& range) {
    if (range.begin >= range.end) return;
    const std::uint64_t numbers[] = {range.begin, range.size()};
    parts.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    parts.append(reinterpret_cast<const char*>(&values[range.begin - at]), range.size() * sizeof(float));
  }
  void add_shared_blocks(std::size_t unit, const std::vector<std::string>& parts) {
    if (world_.rank() != 0) return;
    std::map<std::size_t, std::vector<float>> blocks;
    for (const std::string& of_rank : parts)
      for (std::size_t read = 0; read < of_rank.size();) {
        std::uint64_t numbers[2];
        std::memcpy(numbers, of_rank.data() + read, sizeof numbers);
        read += sizeof numbers;
        std::vector<float>& block = blocks[numbers[0] / kShardAlignment];
        block.resize(kShardAlignment);
        std::memcpy(&block[numbers[0] % kShardAlignment], of_rank.data() + read, numbers[1] * sizeof(float));
        read += numbers[1] * sizeof(float);
      }
    for (const auto& [block, values] : blocks) sum_.add(unit, block, values.data());
  }

  const Storage& storage_;
  const StepPlan& plan_;
  comm::World& world_;
  const Coordinates rank_;
  ProgressCounter progress_;
  BlockSum sum_;
};

}  // namespace

std::string weights_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance) {
  executor.drain();
  return Hasher(executor, plan, world, advance).hash();
}

std::string base_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance) {
  executor.drain();
  return Hasher(executor, plan, world, advance).base_hash();
}

}  // namespace strata::runtime
