#include "device/cpu/backend.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "device/backend.h"
#include "device/cpu/lane_impl.h"

namespace strata::device {

namespace cpu {

std::byte* allocate(Device, std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(Exit::does_not_fit, "the system refused a mapping of {} bytes ({}): lower memory.device or use fewer ranks",
         bytes, std::strerror(errno));
  // Uses huge pages if the system has them: the optimizer's pass would otherwise miss the TLB on every page.
  (void)madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(p);
}

void free(Device, std::byte* data, std::size_t bytes) noexcept {
  munmap(data, bytes);
}

}  // namespace cpu

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
