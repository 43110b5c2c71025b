#include "device/backend.h"

#include <cstdlib>

#include "device/cpu/backend.h"
#include "device/cuda/lane_impl.h"
#include "device/cuda/launch.h"

// The CUDA twin over a fake of CUDA: its own lanes, events, memory and products. Operations are the CPU's, queued as
// the host's work in a lane, except copies, which are the stream's own.
namespace strata::device {

namespace cuda {

std::unique_ptr<FaultWatch::Impl> make_fault_watch(Device device, int rank, AbortToken& abort);
std::unique_ptr<Graph::Impl> capture(Lane& lane, const std::function<void()>& issue);
std::unique_ptr<Product::Impl> make_product(Device device, const ProductShape& shape);
std::string algorithm_machine(Device device);
void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table);
std::byte* allocate(Device device, std::size_t bytes);
std::byte* allocate_host(Device device, std::size_t bytes);
void free(Device device, std::byte* data, std::size_t bytes) noexcept;
void free_host(Device device, std::byte* data, std::size_t bytes) noexcept;
void pin(Device device, std::byte* data, std::size_t bytes);
void unpin(Device device, std::byte* data) noexcept;
void copy(Device device, std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace cuda

namespace {

[[maybe_unused]] const int kFoundThere = setenv("STRATA_CUDA_LIBRARIES", STRATA_FAKE_LIBRARIES, 1);

void copy_or_cast(Lane& lane, ConstView from, View to) {
  if (from.dtype == to.dtype)
    cuda::copy(lane, to.data, from.data, to.bytes());
  else
    cpu::cast(lane, from, to);
}

Operations operations() {
  Operations table = cpu_backend().operations;
  table.cast = copy_or_cast;
  return table;
}

}  // namespace

const Backend* cuda_backend() {
  static const Backend kBackend = {
      .operations = operations(),
      .make_lane = [](std::string name, Device device, int threads, int rank,
                      AbortToken& abort) -> std::unique_ptr<Lane::Impl> {
        return std::make_unique<cuda::StreamLane>(std::move(name), device, threads, rank, abort);
      },
      .make_event = [](Device device, bool host_waits) -> std::unique_ptr<Event::Twin> {
        return std::make_unique<cuda::EventTwin>(device, host_waits);
      },
      .make_fault_watch = cuda::make_fault_watch,
      .capture = cuda::capture,
      .make_product = cuda::make_product,
      .algorithm_machine = cuda::algorithm_machine,
      .search_algorithms = cuda::search_algorithms,
      .attention_workspace = cpu::attention_workspace,
      .allocate = cuda::allocate,
      .allocate_host = cuda::allocate_host,
      .free = cuda::free,
      .free_host = cuda::free_host,
      .pin = cuda::pin,
      .unpin = cuda::unpin,
      .copy = cuda::copy,
  };
  return &kBackend;
}

}  // namespace strata::device
