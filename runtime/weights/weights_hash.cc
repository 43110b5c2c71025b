#include "runtime/weights/weights_hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>

namespace strata::runtime {
namespace {

struct Sum {
  std::uint64_t low = 0, high = 0;
};

std::uint64_t hex_of(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace

std::string weights_hash(Executor& executor, const StepPlan& plan, comm::World& world, const Advance& advance) {
  executor.drain();
  Sum sum;
  std::uint64_t bytes = 0;
  for (const UnitLayout& unit : plan.layout.units) bytes += device::fp32_bytes(unit.shard());
  Advancing advancing(advance, bytes);
  constexpr std::size_t kAtOnce = 256 * kShardAlignment;  // elements read at once
  std::vector<float> values(kAtOnce);
  for (std::size_t unit = 0; unit < plan.layout.units.size(); ++unit) {
    const UnitLayout& u = plan.layout.units[unit];
    const std::size_t part = executor.storage().held(unit, StateKind::master).begin;
    const auto [begin, shard_end] = u.shards.piece(plan.mesh().at(world.rank()));
    // Blocks past the unit's size are padding, whose amount depends on the number of ranks.
    const std::size_t end = std::min(shard_end, (u.size + kShardAlignment - 1) / kShardAlignment * kShardAlignment);
    for (std::size_t at = begin; at < end; at += kAtOnce) {
      const std::size_t n = std::min(kAtOnce, end - at);
      executor.storage().read_state(unit, StateKind::master, device::fp32_bytes(at - part),
                                    std::as_writable_bytes(std::span(values).first(n)));
      for (std::size_t block = 0; block < n; block += kShardAlignment) {
        const std::uint64_t place = std::uint64_t{unit} << 40 | (at + block) / kShardAlignment;
        const XXH128_hash_t h = XXH3_128bits_withSeed(&values[block], device::fp32_bytes(kShardAlignment), place);
        sum.low += h.low64;
        sum.high += h.high64;
      }
      advancing.add(device::fp32_bytes(n));
    }
  }
  Sum all;
  for (const std::string& text : world.exchange(fmt::format("{:016x}{:016x}", sum.high, sum.low))) {
    all.high += hex_of(std::string_view(text).substr(0, 16));
    all.low += hex_of(std::string_view(text).substr(16));
  }
  return fmt::format("{:016x}{:016x}", all.high, all.low);
}

}  // namespace strata::runtime
