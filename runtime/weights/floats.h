#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "device/numeric/nf4.h"
#include "device/numeric/storage_format.h"

namespace strata::runtime {

// Converts stored elements to fp32. In nf4 formats `bytes` must hold complete blocks.
std::vector<float> floats_of(device::StorageFormat format, std::span<const std::byte> bytes);

// The largest magnitude of up to 64 elements.
float nf4_scale(std::span<const float> values);

// Quantises up to 16,384 elements of a matrix into a block of `format`, nf4 or nf4_plain, as bitsandbytes does.
// `offset`: for nf4, the mean of the scales of the complete matrix.
void write_nf4_block(device::StorageFormat format, std::span<const float> values, float offset,
                     std::span<std::byte> block);

// Writes a block of nf4_plain from values that were read from such a block, and restores its codes and scales.
void rewrite_nf4_block(std::span<const float> values, std::span<std::byte> block);

// The same block with its scales in fp32: from `format` to nf4_plain.
void with_plain_scales(device::StorageFormat format, std::span<const std::byte> block, std::span<std::byte> plain);
// Copies 64 elements and their scale, the i-th of a block of nf4_plain, to the j-th of another.
void copy_scale_block(std::span<const std::byte> from, std::size_t i, std::span<std::byte> to, std::size_t j);

// Copies elements between two buffers of a format; in nf4_plain, from and to the beginnings of groups of 64.
void copy_elements(device::StorageFormat format, std::span<const std::byte> from, std::size_t first,
                   std::span<std::byte> to, std::size_t at, std::size_t count);

// Dequantises the first values.size() elements of a block to fp32.
void read_nf4_block(device::StorageFormat format, std::span<const std::byte> block, std::span<float> values);

}  // namespace strata::runtime
