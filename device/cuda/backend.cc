#include "device/backend.h"

#include "device/cuda/backend.h"
#include "device/cuda/lane_impl.h"

namespace strata::device {
namespace {

std::unique_ptr<Lane::Impl> make_lane(std::string name, Device device, int threads, int rank, AbortToken& abort) {
  return std::make_unique<cuda::StreamLane>(std::move(name), device, threads, rank, abort);
}

std::unique_ptr<Event::Twin> make_event(Device device, bool host_waits) {
  return std::make_unique<cuda::EventTwin>(device, host_waits);
}

}  // namespace

const Backend* cuda_backend() {
  static constexpr Backend kBackend = {
      .operations =
          {
#define X(name) .name = cuda::name,
              STRATA_OPERATIONS(X)
#undef X
          },
      .make_lane = make_lane,
      .make_event = make_event,
      .make_fault_watch = cuda::make_fault_watch,
      .capture = cuda::capture,
      .make_product = cuda::make_product,
      .algorithm_machine = cuda::algorithm_machine,
      .search_algorithms = cuda::search_algorithms,
      .attention_workspace = cuda::attention_workspace,
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
