#pragma once
// launcher/measure/ times this machine. `bench` compares parts of the program with what the machine allows
// (bench/bench.h), memory/ is for its part `memory`, and `calibrate` (here) writes the machine file that `plan
// --machine` reads.
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/memory.h"
#include "launcher/measure/call_timer.h"
#include "offload/swap.h"
#include "runtime/forecast/machine.h"

namespace strata::launcher {

// The extent of the measurements, which tests make small.
struct CalibrationScope {
  std::vector<std::filesystem::path> dirs;  // folders of the nvme tier, one per drive
  double seconds = 0.3;  // per figure, over all passes; four times that for figures that run next to a drive
  int passes = 3;
  std::vector<std::size_t> widths = {128, 256, 768};
  std::size_t batch = 4, seq = 256, vocabulary = 8192;
  std::size_t bytes = std::size_t{256} << 20;  // bytes streamed through memory and to the drives
};

constexpr double kWideSpread = 0.15;  // a figure with a wider spread is unreliable

// Measures this rank's speeds while all ranks of `world` measure theirs, with this many threads each. If `figures` is
// given, it receives all figures. Collective.
runtime::Machine measure(const CalibrationScope& scope, comm::World& world, int threads,
                         std::vector<Figure>* figures = nullptr);

// A swap of this many bytes in `folders`, one per drive. Throws Error{failed} if a drive refuses.
offload::Swap open_drives(const std::vector<std::filesystem::path>& folders, comm::World& world, std::size_t bytes);

// Fills memory for a measurement of drives: some drives and virtual machines store pages of zeros at no cost.
void fill_pages(const device::Arena& pages);

struct CalibrateOptions : CalibrationScope {
  std::filesystem::path out;
  bool force = false;  // overwrites out, whatever it contains
};

// `strata calibrate`: measures this machine and writes the machine file that `plan --machine` reads. Under mpirun, all
// ranks measure and rank 0 writes. Returns the exit code.
int calibrate(const CalibrateOptions& options);

// The median spread of the figures; nullopt if there are no figures.
std::optional<double> median_spread(const std::vector<Figure>& figures);
// Comments for the end of a machine file, one line for each figure with a wide spread; empty if there is none.
std::string wide_spreads(const std::vector<Figure>& figures);

}  // namespace strata::launcher
