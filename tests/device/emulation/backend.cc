#include "tests/device/emulation/backend.h"

#include <cstring>
#include <new>

#include "device/backend.h"
#include "device/cpu/backend.h"
#include "tests/device/emulation/lane.h"

namespace strata::device {
namespace cuda {

// Null where no .cu file defines it.
#define X(name) [[gnu::weak]] decltype(device::name) name;
STRATA_OPERATIONS(X)
#undef X
[[gnu::weak]] std::size_t attention_workspace(const AttentionShape& shape, DType dtype, int threads);

}  // namespace cuda

namespace {

// As a GPU's allocations, and pages of the host; apart from each other, so that AddressSanitizer sees what goes beyond
// one.
template <std::size_t kAlignment>
std::byte* allocate(Device, std::size_t bytes) {
  return static_cast<std::byte*>(std::memset(::operator new (bytes, std::align_val_t{kAlignment}), 0, bytes));
}
template <std::size_t kAlignment>
void release(Device, std::byte* data, std::size_t) noexcept {
  ::operator delete (data, std::align_val_t{kAlignment});
}

Operations operations() {
  return {
#define X(name) .name = cuda::name ? cuda::name : cpu::name,
      STRATA_OPERATIONS(X)
#undef X
  };
}

std::unique_ptr<Lane::Impl> make_lane(std::string name, Device device, int threads, int rank, AbortToken& abort) {
  return std::make_unique<emulation::EmulatedLane>(name, device, threads, rank, abort, cuda_backend()->operations);
}

}  // namespace

const Backend* cuda_backend() {
  static const Backend kBackend = {
      .operations = operations(),
      .make_lane = make_lane,
      .make_event = [](Device) { return std::unique_ptr<Event::Twin>(); },
      .make_product = cpu::make_product,
      .attention_workspace = cuda::attention_workspace ? cuda::attention_workspace : cpu::attention_workspace,
      .allocate = allocate<256>,
      .allocate_host = allocate<4096>,
      .free = release<256>,
      .free_host = release<4096>,
      .copy = [](Device, std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
  };
  return &kBackend;
}

std::vector<std::string> emulation::missing_operations() {
  std::vector<std::string> names;
#define X(name) \
  if (!cuda::name) names.push_back(#name);
  STRATA_OPERATIONS(X)
#undef X
  return names;
}

}  // namespace strata::device
