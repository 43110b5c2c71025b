#pragma once
// launcher/commands/predict/ is `strata predict`: its texts as tokens beside OUT (predict_input.h), what is done so far
// in OUT.part (predict_part.h), and the command (here).
#include "launcher/commands/predict/predict_options.h"

namespace strata::launcher {

// `strata predict`: what a classifier says of each text, in the order of the input: the same on any number of ranks.
// Keeps what is done in OUT.part, from which the same command goes on. Returns the exit code; throws Error.
int predict(const PredictOptions& options);

}  // namespace strata::launcher
