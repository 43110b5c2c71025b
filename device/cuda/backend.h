#pragma once
// device/cuda/ is the twin for NVIDIA's GPUs: lanes are streams (lane_impl.h), events between streams and host threads
// are flags in pinned memory (flags.h), kernels/ holds what ops/*.cu share, and libraries/ loads cuBLASLt and cuDNN
// when they are needed. Without nvcc, absent.cc replaces all of it. Tests run it under emulation and over a fake CUDA
// (tests/device/). This header declares what backend.cc puts into the table of device/backend.h.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/algorithm_table.h"
#include "device/fault_watch.h"
#include "device/graph.h"
#include "device/operations.h"
#include "device/product_impl.h"

namespace strata::device::cuda {

// The parts of CUDA's Backend that are implemented in other files.
std::unique_ptr<Graph::Impl> capture(Lane& lane, const std::function<void()>& issue);
std::unique_ptr<FaultWatch::Impl> make_fault_watch(Device device, int rank, AbortToken& abort);
std::unique_ptr<Product::Impl> make_product(Device device, const ProductShape& shape);
std::string algorithm_machine(Device device);
void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table);
std::size_t attention_workspace(const AttentionShape& shape, DType dtype, bool dropout, int threads);

std::byte* allocate(Device device, std::size_t bytes);
std::byte* allocate_host(Device device, std::size_t bytes);
void free(Device device, std::byte* data, std::size_t bytes) noexcept;
void free_host(Device device, std::byte* data, std::size_t bytes) noexcept;
void pin(Device device, std::byte* data, std::size_t bytes);
void unpin(Device device, std::byte* data) noexcept;
void copy(Device device, std::byte* to, const std::byte* from, std::size_t bytes);

#define X(name) decltype(device::name) name;  // NOLINT(bugprone-macro-parentheses)
STRATA_OPERATIONS(X)
#undef X

}  // namespace strata::device::cuda
