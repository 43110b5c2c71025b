#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "device/cpu/backend.h"

namespace strata::device::cpu {

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

}  // namespace strata::device::cpu
