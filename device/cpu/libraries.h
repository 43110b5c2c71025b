#pragma once
#include <string>

namespace strata::device::cpu {

// What `doctor` shows of the libraries that compute: "oneDNN 2.6.3, instruction set avx512_core_amx, threads omp".
std::string describe_libraries();

}  // namespace strata::device::cpu
