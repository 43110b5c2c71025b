#pragma once
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/elementwise.h"
#include "device/view.h"
#include "launcher/median.h"

namespace strata::launcher {

// A lane that has its own memory, for timing operations.
class BenchLane {
 public:
  // bytes: the size of the arena.
  BenchLane(int threads, std::size_t bytes, device::Device device = {})
      : lane_("bench", threads, 0, abort_, device), arena_(bytes, device) {}

  device::Lane& lane() { return lane_; }
  // The next `size` elements of the arena.
  device::View take(std::size_t size, device::DType dtype) {
    const device::View view{arena_.at(used_), size, dtype};
    used_ += (view.bytes() + 4095) / 4096 * 4096;
    STRATA_CHECK_LE(used_, arena_.size());
    zero(lane_, view);
    return view;
  }
  // Releases all memory that was taken.
  void clear() { used_ = 0; }
  // Fills the view with `bytes`, repeated.
  void fill(device::View view, std::span<const std::byte> bytes) {
    lane_.synchronize();
    const auto begin = static_cast<std::size_t>(view.data - arena_.data());
    for (std::size_t at = 0; at < view.bytes(); at += bytes.size())
      arena_.write(begin + at, bytes.first(std::min(bytes.size(), view.bytes() - at)));
  }
  // The time of f() in the lane in seconds: the median of `runs` runs, after one that does not count.
  template <typename F>
  double time(int runs, F&& f) {
    std::vector<double> seconds;
    for (int run = -1; run < runs; ++run) {
      lane_.synchronize();
      const auto start = SteadyClock::now();
      f();
      lane_.synchronize();
      if (run >= 0) seconds.push_back(seconds_since(start));
    }
    return median_of(std::move(seconds));
  }

 private:
  AbortToken abort_;
  device::Lane lane_;
  device::Arena arena_;
  std::size_t used_ = 0;
};

}  // namespace strata::launcher
