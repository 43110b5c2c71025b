#pragma once
// launcher/measure/ times this machine: `bench` compares parts of the program with what the machine allows
// (bench/bench.h), memory/ is what its part `memory` compares and draws, `calibrate` writes the machine file that `plan
// --machine` reads (here).
#include <filesystem>

#include "launcher/measure/calibration.h"

namespace strata::launcher {

struct CalibrateOptions : CalibrationScope {
  std::filesystem::path out;
  bool force = false;  // out is written over whatever it is
};

// `strata calibrate`: measures this machine and writes the machine file that `plan --machine` reads; under mpirun as
// each of its ranks sees it, rank 0 writing. Returns the exit code.
int calibrate(const CalibrateOptions& options);

}  // namespace strata::launcher
