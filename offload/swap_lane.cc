#include "offload/swap_lane.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "device/cpu/lane_impl.h"

namespace strata::offload {
namespace {

// Ranges in a form that a closure can hold.
struct Ranges {
  std::array<Range, kMostRanges> all;
  std::size_t count;

  explicit Ranges(std::span<const Range> ranges) : count(ranges.size()) {
    STRATA_CHECK_LE(count, kMostRanges);
    std::copy(ranges.begin(), ranges.end(), all.begin());
  }
  std::span<const Range> span() const { return {all.data(), count}; }
};

}  // namespace

void read(device::Lane& lane, Swap& swap, std::span<const Range> ranges) {
  device::cpu::submit(lane, [&swap, kept = Ranges(ranges)](device::cpu::Team&) { swap.read(kept.span()); });
}

void write(device::Lane& lane, Swap& swap, std::span<const Range> ranges) {
  device::cpu::submit(lane, [&swap, kept = Ranges(ranges)](device::cpu::Team&) { swap.write(kept.span()); });
}

}  // namespace strata::offload
