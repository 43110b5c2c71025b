#pragma once
#include <string>

namespace strata::device::cpu {

// For `doctor`: the libraries that compute, such as "oneDNN 2.6.3, instruction set avx512_core_amx, threads omp".
std::string describe_libraries();

}  // namespace strata::device::cpu
