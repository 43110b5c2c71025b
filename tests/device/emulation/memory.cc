#include "tests/device/emulation/memory.h"

#include <sys/mman.h>

#include <map>
#include <mutex>

#include "base/error.h"

namespace strata::device::emulation {
namespace {

class GuardedMemory {
 public:
  std::byte* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    void* p = mmap(nullptr, bytes, protection(), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    STRATA_CHECK(p != MAP_FAILED);
    regions_[p] = bytes;
    return static_cast<std::byte*>(p);
  }
  void release(std::byte* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    regions_.erase(data);
    munmap(data, bytes);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    if (++open_ == 1) protect();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) protect();
  }

 private:
  int protection() const { return open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE; }
  void protect() const {
    for (const auto& [data, bytes] : regions_) STRATA_CHECK_EQ(mprotect(data, bytes, protection()), 0);
  }

  std::mutex mutex_;
  std::map<void*, std::size_t> regions_;
  int open_ = 0;
};

GuardedMemory& memory() {
  static GuardedMemory instance;
  return instance;
}

}  // namespace

std::byte* allocate(Device, std::size_t bytes) {
  return memory().allocate(bytes);
}
void release(Device, std::byte* data, std::size_t bytes) noexcept {
  memory().release(data, bytes);
}
void open_memory() {
  memory().open();
}
void close_memory() {
  memory().close();
}

}  // namespace strata::device::emulation
