#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "device/numeric/storage_format.h"

namespace strata::runtime {

// Converts stored elements to fp32. In nf4 formats `bytes` must hold complete blocks.
std::vector<float> floats_of(device::StorageFormat format, std::span<const std::byte> bytes);

}  // namespace strata::runtime
