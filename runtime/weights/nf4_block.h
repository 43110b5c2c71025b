#pragma once
#include <cstddef>
#include <span>

#include "device/numeric/nf4.h"

namespace strata::runtime {

// The largest magnitude of up to 64 elements.
float nf4_scale(std::span<const float> values);

// Up to 16,384 elements of a matrix as a block of `format`, which is nf4 or nf4_plain, as bitsandbytes quantises them.
// offset: the mean of the scales of the whole matrix; of nf4.
void write_nf4_block(device::StorageFormat format, std::span<const float> values, float offset,
                     std::span<std::byte> block);

// The first elements of a block, in fp32.
void read_nf4_block(device::StorageFormat format, std::span<const std::byte> block, std::span<float> values);

}  // namespace strata::runtime
