#pragma once
#include "launcher/commands/generate_options.h"

namespace strata::launcher {

// `strata generate`: what follows the prompt, to stdout as it comes; one rank of several, of which rank 0 speaks.
// Returns the exit code; throws Error.
int generate(const GenerateOptions& options);

}  // namespace strata::launcher
