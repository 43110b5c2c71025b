#pragma once
// launcher/commands/predict/ is `strata predict`: its texts as tokens next to OUT (predict_input.h), finished work in
// OUT.part (predict_part.h), and the command (here).
#include "launcher/commands/predict/predict_options.h"

namespace strata::launcher {

// `strata predict`: a classifier's scores of each text, in the order of the input, the same on any number of ranks.
// OUT.part holds finished work, from which the same command resumes. Returns the exit code; throws Error.
int predict(const PredictOptions& options);

}  // namespace strata::launcher
