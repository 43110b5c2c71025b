#pragma once
#include <string>

namespace strata {

// 32 random hexadecimal digits, unguessable and never repeated: names of runs, secrets of a measurement.
std::string random_name();

}  // namespace strata
