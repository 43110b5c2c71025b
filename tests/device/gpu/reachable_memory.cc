#include "tests/device/gpu/reachable_memory.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>

// The tests of operations hand over the host's memory: vectors, and variables on the stack. Here all of that is pinned,
// which a GPU reads and writes: operator new takes from pinned pages once they are there, and tests run on such a
// stack.
namespace strata::device::testing {
namespace {

constexpr std::size_t kPool = std::size_t{1} << 30, kStack = std::size_t{64} << 20;
// Larger blocks are pinned one by one, and given back.
constexpr std::size_t kPooled = std::size_t{1} << 20;
constexpr std::size_t kHeader = 64;

enum class Origin : std::size_t { heap, pool, pages };
struct Header {
  Origin origin;
  std::size_t bytes;
};
static_assert(sizeof(Header) <= kHeader);

std::byte* pin(std::size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || cudaHostRegister(p, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) != cudaSuccess)
    return nullptr;
  return static_cast<std::byte*>(p);
}

std::atomic<std::pmr::memory_resource*> pool{nullptr};

void* allocate(std::size_t wanted) {
  const std::size_t bytes = wanted + kHeader;
  std::pmr::memory_resource* const from = pool.load(std::memory_order_acquire);
  Header header{Origin::heap, bytes};
  void* p = nullptr;
  if (!from) {
    p = std::aligned_alloc(kHeader, (bytes + kHeader - 1) / kHeader * kHeader);
  } else if (bytes <= kPooled) {
    header.origin = Origin::pool;
    p = from->allocate(bytes, kHeader);
  } else {
    header.origin = Origin::pages;
    p = pin(bytes);
  }
  if (!p) throw std::bad_alloc();
  *static_cast<Header*>(p) = header;
  return static_cast<std::byte*>(p) + kHeader;
}

void release(void* at) noexcept {
  if (!at) return;
  void* const p = static_cast<std::byte*>(at) - kHeader;
  const Header header = *static_cast<Header*>(p);
  switch (header.origin) {
    case Origin::heap:
      return std::free(p);
    case Origin::pool:
      return pool.load(std::memory_order_relaxed)->deallocate(p, header.bytes, kHeader);
    case Origin::pages:
      (void)cudaHostUnregister(p);
      munmap(p, header.bytes);
  }
}

// What the pool itself needs beside its blocks comes from the pinned pages too: none of it goes through operator new.
struct Pool {
  explicit Pool(std::byte* pages)
      : all(pages, kPool, std::pmr::null_memory_resource()),
        blocks({.max_blocks_per_chunk = 0, .largest_required_pool_block = kPooled}, &all) {}
  std::pmr::monotonic_buffer_resource all;
  std::pmr::synchronized_pool_resource blocks;
};

}  // namespace

int run_in_reachable_memory(int (*run)()) {
  std::byte* const pages = pin(kPool);
  std::byte* const stack = pin(kStack);
  pthread_attr_t attributes;
  if (!pages || !stack || pthread_attr_init(&attributes) != 0 || pthread_attr_setstack(&attributes, stack, kStack) != 0)
    return -1;
  // Never destroyed: objects that live to the end of the program lie in it.
  alignas(Pool) static std::byte place[sizeof(Pool)];
  pool.store(&(new (place) Pool(pages))->blocks, std::memory_order_release);
  pthread_t thread{};
  const auto body = [](void* f) -> void* {
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(reinterpret_cast<int (*)()>(f)()));
  };
  if (pthread_create(&thread, &attributes, body, reinterpret_cast<void*>(run)) != 0) return -1;
  void* result = nullptr;
  pthread_join(thread, &result);
  return static_cast<int>(reinterpret_cast<std::intptr_t>(result));
}

}  // namespace strata::device::testing

void* operator new(std::size_t bytes) {
  return strata::device::testing::allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return strata::device::testing::allocate(bytes);
}
void operator delete(void* p) noexcept {
  strata::device::testing::release(p);
}
void operator delete[](void* p) noexcept {
  strata::device::testing::release(p);
}
void operator delete(void* p, std::size_t) noexcept {
  strata::device::testing::release(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  strata::device::testing::release(p);
}
