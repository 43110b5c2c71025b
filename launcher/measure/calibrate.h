#pragma once
// launcher/measure/ times this machine: `bench` compares parts of the program with what the machine allows
// (bench/bench.h), memory/ is what its part `memory` compares and draws, `calibrate` writes the machine file that `plan
// --machine` reads (here).
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/forecast/machine.h"

namespace strata::launcher {

struct CalibrateOptions {
  std::filesystem::path out;
  std::vector<std::filesystem::path> dirs;  // folders of the nvme tier, one a drive
  bool force = false;                       // out is written over whatever it is
  // How much is measured: what tests make small.
  double seconds = 0.3;  // of each figure, in all passes; four times that beside a drive
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

// The speeds of this rank while all ranks of `world` measure theirs, with so many threads; `figures` gets them one by
// one. Collective.
runtime::Machine measure(const CalibrateOptions& options, comm::World& world, int threads,
                         std::vector<Figure>* figures = nullptr);

// `strata calibrate`: measures this machine and writes the machine file that `plan --machine` reads; under mpirun as
// each of its ranks sees it, rank 0 writing. Returns the exit code.
int calibrate(const CalibrateOptions& options);

}  // namespace strata::launcher
