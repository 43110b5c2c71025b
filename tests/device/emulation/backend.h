#pragma once
#include <string>
#include <vector>

namespace strata::device::emulation {

// Operations of the emulated twin that device/cuda/ops does not define yet: they are the CPU's.
std::vector<std::string> missing_operations();

}  // namespace strata::device::emulation
