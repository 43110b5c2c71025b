// The tests of operations on a real GPU, unchanged: they hand the stack's and the heap's memory to operations, so here
// both lie in memory that the GPU addresses. Without a GPU it says so and exits with 77, which counts as skipped.
#include <gmock/gmock.h>
#include <pthread.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "device/gpu.h"
#include "device/memory.h"

namespace {

constexpr std::size_t kHeap = std::size_t{3} << 30, kStack = std::size_t{64} << 20, kSkipped = 77;

// Blocks of powers of two, given out again when they come back. Before the heap is there, and when it is full, malloc.
class Heap {
 public:
  void begin(std::byte* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    first_ = next_ = memory;
    end_ = memory + bytes;
  }
  void* take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(bytes < 64 ? 64 : bytes);
    const std::lock_guard lock(mutex_);
    Free*& list = free_[static_cast<std::size_t>(std::countr_zero(size))];
    if (list) {
      void* const taken = list;
      list = list->next;
      return taken;
    }
    if (next_ && size <= static_cast<std::size_t>(end_ - next_)) return std::exchange(next_, next_ + size);
    return std::aligned_alloc(64, size);
  }
  void give(void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (memory < first_ || memory >= end_) return std::free(memory);
    Free*& list = free_[static_cast<std::size_t>(std::countr_zero(std::bit_ceil(bytes < 64 ? 64 : bytes)))];
    list = new (memory) Free{list};
  }

 private:
  struct Free {
    Free* next;
  };
  std::mutex mutex_;
  std::array<Free*, 64> free_{};
  std::byte *first_ = nullptr, *next_ = nullptr, *end_ = nullptr;
};

Heap& heap() {
  static Heap* const forever = new (std::malloc(sizeof(Heap))) Heap();
  return *forever;
}

// The size lies before what is given out: not every delete knows it.
constexpr std::size_t kHeader = 64;

}  // namespace

void* operator new(std::size_t bytes) {
  auto* const memory = static_cast<std::byte*>(heap().take(bytes + kHeader));
  if (!memory) throw std::bad_alloc();
  new (memory) std::size_t(bytes + kHeader);
  return memory + kHeader;
}
void operator delete(void* memory) noexcept {
  if (!memory) return;
  std::byte* const first = static_cast<std::byte*>(memory) - kHeader;
  heap().give(first, *reinterpret_cast<std::size_t*>(first));
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const strata::device::Gpus found = strata::device::find_gpus();
  if (!found.usable()) {
    std::printf("Skipped: %s\n", found.problem.empty() ? "no GPU here can be used" : found.problem.c_str());
    return kSkipped;
  }
  const auto memory = strata::device::Arena::host(kHeap + kStack, found.gpus[0].device);
  heap().begin(memory.data() + kStack, kHeap);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, memory.data(), kStack);
  pthread_t thread{};
  int failed = 1;
  if (pthread_create(
          &thread, &attributes,
          [](void* out) -> void* {
            *static_cast<int*>(out) = RUN_ALL_TESTS();
            return nullptr;
          },
          &failed) != 0) {
    std::perror("pthread_create");
    return 1;
  }
  pthread_join(thread, nullptr);
  std::fflush(nullptr);
  std::_Exit(failed);  // what lies in the heap outlives everything that would free it
}
