#pragma once
// launcher/measure/ times this machine: `bench` compares parts of the program with what the machine allows
// (bench/bench.h), memory/ is what its part `memory` compares and draws, `calibrate` writes the machine file that `plan
// --machine` reads (here).
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/measure/calibration.h"

namespace strata::launcher {

struct CalibrateOptions : CalibrationScope {
  std::filesystem::path out;
  bool force = false;  // out is written over whatever it is
};

// `strata calibrate`: measures this machine and writes the machine file that `plan --machine` reads; under mpirun as
// each of its ranks sees it, rank 0 writing. Returns the exit code.
int calibrate(const CalibrateOptions& options);

// The median of the figures' spreads; none: there are none.
std::optional<double> median_spread(const std::vector<Figure>& figures);
// Comments for the end of a machine file, a line per figure whose spread is wide; empty: none is.
std::string wide_spreads(const std::vector<Figure>& figures);

}  // namespace strata::launcher
