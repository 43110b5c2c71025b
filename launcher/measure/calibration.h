#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "offload/swap.h"
#include "runtime/forecast/machine.h"

namespace strata::launcher {

// What is measured, and how much of it: what tests make small.
struct CalibrationScope {
  std::vector<std::filesystem::path> dirs;  // folders of the nvme tier, one a drive
  double seconds = 0.3;                     // of each figure, in all passes; four times that beside a drive
  int passes = 3;
  std::vector<std::size_t> widths = {128, 256, 768};
  std::size_t batch = 4, seq = 256, vocabulary = 8192;
  std::size_t bytes = std::size_t{256} << 20;  // of what streams through memory and to the drives
};

// What was measured, for people: how far its calls lay apart, as a part of their median (half of the span from the
// 10th to the 90th percentile).
struct Figure {
  std::string what, unit;
  double value, spread;
};
constexpr double kWideSpread = 0.15;  // a figure above it is no measure of the machine

// The speeds of this rank while all ranks of `world` measure theirs, with so many threads; `figures` gets them one by
// one. Collective.
runtime::Machine measure(const CalibrationScope& scope, comm::World& world, int threads,
                         std::vector<Figure>* figures = nullptr);

// A swap of so many bytes in `folders`, one per drive. Throws Error{failed} where a drive refuses.
offload::Swap open_drives(const std::vector<std::filesystem::path>& folders, comm::World& world, std::size_t bytes);

}  // namespace strata::launcher
