#pragma once
#include <string>

namespace strata {

// 32 hexadecimal digits that nobody can guess, and that come once: names of runs, secrets of a measurement.
std::string random_name();

}  // namespace strata
