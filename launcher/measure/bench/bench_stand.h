#pragma once
#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/elementwise.h"
#include "device/view.h"

namespace strata::launcher {

// A lane with its own memory, for timing operations.
class Stand {
 public:
  // bytes: the size of the arena.
  Stand(int threads, std::size_t bytes, device::Device device = {})
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
  // Gives all memory back that was taken.
  void clear() { used_ = 0; }
  // Fills the view with `bytes`, repeated.
  void fill(device::View view, std::span<const std::byte> bytes) {
    lane_.synchronize();
    const auto begin = static_cast<std::size_t>(view.data - arena_.data());
    for (std::size_t at = 0; at < view.bytes(); at += bytes.size())
      arena_.write(begin + at, bytes.first(std::min(bytes.size(), view.bytes() - at)));
  }
  // Seconds of f() in the lane: the median of `runs`, after one that is not counted.
  template <typename F>
  double time(int runs, F&& f) {
    std::vector<double> seconds;
    for (int run = -1; run < runs; ++run) {
      lane_.synchronize();
      const auto start = std::chrono::steady_clock::now();
      f();
      lane_.synchronize();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (run >= 0) seconds.push_back(took.count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.end());
    return seconds[static_cast<std::size_t>(runs / 2)];
  }

 private:
  AbortToken abort_;
  device::Lane lane_;
  device::Arena arena_;
  std::size_t used_ = 0;
};

// Bandwidth in GB/s of y += x over arrays far larger than the caches, at 12 bytes per element.
double triad_gb_per_s(int threads);

}  // namespace strata::launcher
