#pragma once
#include <ostream>

namespace strata::launcher {

// `strata doctor`: what this machine offers and what to fix, a line each ("ok", "note" or "fix"), into `out`. Returns
// the exit code: 1 where training cannot work at all.
int doctor(std::ostream& out);

}  // namespace strata::launcher
