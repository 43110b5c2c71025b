// Runs the tests of operations unchanged on a real GPU. They pass memory of the stack and the heap to operations, so
// here both lie in memory that the GPU can address. Without a GPU, the program says so and exits with 77, which counts
// as skipped.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <pthread.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "device/gpu.h"
#include "device/memory.h"
#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace {

constexpr std::size_t kHeap = std::size_t{3} << 30, kStack = std::size_t{64} << 20, kSkipped = 77;

// Precedes each block, because not every delete knows the size.
struct Header {
  std::size_t bytes;      // asked for, with this
  std::size_t unused[7];  // the data after it starts at a multiple of 64
};

std::size_t order_of(std::size_t bytes) {
  return static_cast<std::size_t>(std::countr_zero(std::bit_ceil(bytes)));
}

// Allocates blocks of powers of two, and reuses freed ones. Uses malloc if the heap does not exist or is full.
class Heap {
 public:
  void begin(std::byte* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    first_ = next_ = memory;
    end_ = memory + bytes;
  }

  std::byte* take(std::size_t asked) {
    const std::size_t bytes = asked + sizeof(Header), order = order_of(bytes);
    const std::lock_guard lock(mutex_);
    auto* block = pop(free_[order]);
    const std::size_t size = std::size_t{1} << order;
    if (!block && next_ && size <= static_cast<std::size_t>(end_ - next_)) block = std::exchange(next_, next_ + size);
    if (!block) block = static_cast<std::byte*>(std::aligned_alloc(64, size));
    return block ? begin_block(block, {bytes, {}}) : nullptr;
  }
  void give(std::byte* memory) {
    auto* const block = memory - sizeof(Header);
    Header header;
    std::memcpy(&header, block, sizeof header);
    const std::size_t order = order_of(header.bytes);
    const std::lock_guard lock(mutex_);
    if (block >= first_ && block < end_)
      push(free_[order], block);
    else
      std::free(block);
  }

 private:
  struct Free {
    Free* next;
  };
  static std::byte* begin_block(std::byte* block, const Header& header) {
    std::memcpy(block, &header, sizeof header);
    return block + sizeof(Header);
  }
  static void push(Free*& list, void* block) { list = new (block) Free{list}; }
  static std::byte* pop(Free*& list) {
    Free* const taken = list;
    if (taken) list = taken->next;
    return reinterpret_cast<std::byte*>(taken);
  }

  std::mutex mutex_;
  std::array<Free*, 64> free_{};
  std::byte *first_ = nullptr, *next_ = nullptr, *end_ = nullptr;
};

Heap& heap() {
  static Heap* const forever = new (std::malloc(sizeof(Heap))) Heap();
  return *forever;
}

}  // namespace

void* operator new(std::size_t bytes) {
  auto* const memory = heap().take(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory) heap().give(static_cast<std::byte*>(memory));
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace strata::device {
namespace {

// A deliberate error that proves that compute-sanitizer works: a write beyond the end of a block of GPU memory. The
// tool does not detect writes beyond the end of pinned memory, which holds the other tests' operands.
TEST(Planted, DISABLED_WritesAfterABlock) {
  const Arena from(1040 * sizeof(float), testing::kDevice), to(1024 * sizeof(bf16), testing::kDevice);
  testing::in_lane(1, [&](Lane& lane) {
    cast(lane, {from.data(), 1040, DType::fp32}, View{to.data(), 1040, DType::bf16});
  });
}

}  // namespace
}  // namespace strata::device

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
  std::_Exit(failed);  // the heap's contents must outlive all code that frees them
}
