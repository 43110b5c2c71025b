#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "device/numeric/storage_format.h"

namespace strata::runtime {

// Elements that are stored in fp32, bf16, fp16, or blocks of nf4, of which `bytes` holds whole ones.
std::vector<float> floats_of(device::StorageFormat format, std::span<const std::byte> bytes);

}  // namespace strata::runtime
