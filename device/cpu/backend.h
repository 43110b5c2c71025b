#pragma once
// device/cpu/ is the CPU's twin: lanes are threads with teams of workers (lane_impl.h, team.h), products are oneDNN's
// or our own in fixed tiles (matmul.h), and kernels/ is compiled once for AVX2 and once for AVX-512 (isa.h chooses).
// This header declares what backend.cc puts into the table of device/backend.h.

#include <cstddef>
#include <memory>

#include "device/operations.h"
#include "device/product_impl.h"

namespace strata::device::cpu {

// The parts of the CPU's Backend that are implemented in other files.
std::unique_ptr<Product::Impl> make_product(Device device, const ProductShape& shape);
std::size_t attention_workspace(const AttentionShape& shape, DType dtype, bool dropout, int threads);

std::byte* allocate(Device device, std::size_t bytes);
void free(Device device, std::byte* data, std::size_t bytes) noexcept;

#define X(name) decltype(device::name) name;  // NOLINT(bugprone-macro-parentheses)
STRATA_OPERATIONS(X)
#undef X

}  // namespace strata::device::cpu
