#include "device/cpu/backend.h"

#include <cstring>

#include "device/backend.h"
#include "device/cpu/lane_impl.h"

namespace strata::device {
namespace {

std::unique_ptr<Lane::Impl> make_lane(std::string name, Device, int threads, int rank, AbortToken& abort) {
  return std::make_unique<cpu::HostLane>(std::move(name), threads, rank, abort);
}

}  // namespace

const Backend& cpu_backend() {
  static constexpr Backend kBackend = {
      .operations =
          {
#define X(name) .name = cpu::name,
              STRATA_OPERATIONS(X)
#undef X
          },
      .make_lane = make_lane,
      .make_event = [](Device, bool) { return std::unique_ptr<Event::Twin>(); },
      .make_fault_watch = nullptr,
      .make_product = cpu::make_product,
      .attention_workspace = cpu::attention_workspace,
      .allocate = cpu::allocate,
      .allocate_host = cpu::allocate,
      .free = cpu::free,
      .free_host = cpu::free,
      .pin = nullptr,
      .unpin = nullptr,
      .copy = [](Device, std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); },
  };
  return kBackend;
}

}  // namespace strata::device
