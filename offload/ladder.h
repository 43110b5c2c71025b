#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/abort.h"
#include "offload/drive.h"
#include "offload/io_options.h"
#include "offload/swap_file.h"

namespace strata::offload {

// The drive of a swap file on the best rung that works there. For each higher rung: why it is not used, and what would
// help.
struct Chosen {
  std::unique_ptr<Drive> drive;
  Rung rung;
  std::vector<std::string> refused;
};

// Tries the rungs that `options` leaves open, from the top: io_uring, libaio, threads; O_DIRECT before buffered;
// registered buffers before plain ones. Each writes a block, reads it back and compares. `options` outlives the drive.
// Throws Error{usage} with the reasons if a forced rung does not work, Error{failed} if no rung does.
Chosen climb(SwapFile& file, const IoOptions& options, const AbortToken& abort);

// Why registering memory failed, and what helps.
std::string registration_refused(int error);

}  // namespace strata::offload
