#include "device/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "device/error.h"

namespace strata::device {

Arena::Arena(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail(Exit::does_not_fit, "the system refused a mapping of {} bytes ({}): lower memory.device or use fewer ranks",
         bytes, std::strerror(errno));
  // Huge pages where the system has them: the optimizer's pass would otherwise miss the TLB on every page.
  (void)madvise(p, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

Arena Arena::adopt(std::byte* data, std::size_t bytes, std::shared_ptr<const void> owner) {
  Arena arena;
  arena.data_ = data;
  arena.bytes_ = bytes;
  arena.owner_ = std::move(owner);
  return arena;
}

Arena::~Arena() {
  if (data_ && !owner_) munmap(data_, bytes_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      owner_(std::move(other.owner_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(owner_, other.owner_);
  return *this;
}

}  // namespace strata::device
