#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/algorithm_table.h"
#include "device/device.h"
#include "device/fault_watch.h"
#include "device/graph.h"
#include "device/lane_impl.h"
#include "device/operations.h"
#include "device/product_impl.h"

namespace strata::device {

// The parts of a twin for one kind of device, filled in by device/cpu/backend.cc and device/cuda/backend.cc.
// device/dispatch/ implements what device/*.h and device/ops/ declare. Its sources see this table; the headers do not.
struct Backend {
  Operations operations;

  std::unique_ptr<Lane::Impl> (*make_lane)(std::string name, Device device, int threads, int rank, AbortToken& abort);
  // Creates the device's part of an event, in addition to the host's part; null if the host's part is enough.
  std::unique_ptr<Event::Twin> (*make_event)(Device device, bool host_waits);
  // Implements device/fault_watch.h; null if a device cannot fail on its own.
  std::unique_ptr<FaultWatch::Impl> (*make_fault_watch)(Device device, int rank, AbortToken& abort);
  // Implements device/graph.h; null if lanes cannot be recorded.
  std::unique_ptr<Graph::Impl> (*capture)(Lane& lane, const std::function<void()>& issue);
  std::unique_ptr<Product::Impl> (*make_product)(Device device, const ProductShape& shape);
  // Implements device/algorithm_table.h; null if products have no choice of algorithms.
  std::string (*algorithm_machine)(Device device);
  void (*search_algorithms)(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table);
  std::size_t (*attention_workspace)(const AttentionShape& shape, DType dtype, bool dropout, int threads);

  // Allocate zeroed device memory, and zeroed host memory that the device accesses at full speed. Throw
  // Error{does_not_fit}.
  std::byte* (*allocate)(Device device, std::size_t bytes);
  std::byte* (*allocate_host)(Device device, std::size_t bytes);
  void (*free)(Device device, std::byte* data, std::size_t bytes) noexcept;
  void (*free_host)(Device device, std::byte* data, std::size_t bytes) noexcept;
  // Give host memory allocated elsewhere the same speed; null if there is nothing to do.
  void (*pin)(Device device, std::byte* data, std::size_t bytes);
  void (*unpin)(Device device, std::byte* data) noexcept;
  // Copies between the device's memory and any memory; blocking.
  void (*copy)(Device device, std::byte* to, const std::byte* from, std::size_t bytes);
};

// Throws Error{usage} for a kind that this program was built without.
const Backend& backend(Kind kind);

// Defined by each twin. device/cuda/absent.cc replaces one that is not built.
const Backend& cpu_backend();
const Backend* cuda_backend();  // null: not built

}  // namespace strata::device
