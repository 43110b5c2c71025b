#pragma once
#include <string>

namespace strata {

// 32 hexadecimal digits that nobody can guess and that never repeat: names of runs, secrets of a measurement.
std::string random_name();

}  // namespace strata
