#pragma once
// launcher/measure/ times this machine. `bench` compares parts of the program with what the machine allows
// (bench/bench.h), memory/ is for its part `memory`, and `calibrate` writes the machine file that `plan --machine`
// reads (here).
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launcher/measure/calibration.h"

namespace strata::launcher {

struct CalibrateOptions : CalibrationScope {
  std::filesystem::path out;
  bool force = false;  // overwrites out, whatever it is
};

// `strata calibrate`: measures this machine and writes the machine file that `plan --machine` reads. Under mpirun all
// ranks measure and rank 0 writes. Returns the exit code.
int calibrate(const CalibrateOptions& options);

// The median spread of the figures; nullopt if there are no figures.
std::optional<double> median_spread(const std::vector<Figure>& figures);
// Comments for the end of a machine file, one line per figure with a wide spread; empty if there is none.
std::string wide_spreads(const std::vector<Figure>& figures);

}  // namespace strata::launcher
