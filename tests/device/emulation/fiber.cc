#include "tests/device/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
static void __sanitizer_start_switch_fiber(void**, const void*, std::size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*) {}
#endif

namespace strata::device::emulation {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024, kGuardBytes = 4096;

// swapcontext() would query the kernel's signal mask each time, so it is only used to enter a context.
[[gnu::noinline]] void change(jmp_buf& from, jmp_buf& to) {
  if (_setjmp(from) == 0) _longjmp(to, 1);
}

}  // namespace

Fiber::Fiber(void (*body)(void*), void* context) : body_(body), context_(context) {
  void* p = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  STRATA_CHECK(p != MAP_FAILED);
  stack_ = static_cast<std::byte*>(p);
  STRATA_CHECK_EQ(mprotect(p, kGuardBytes, PROT_NONE), 0);
  STRATA_CHECK_EQ(getcontext(&entry_), 0);
  entry_.uc_stack.ss_sp = stack_ + kGuardBytes;
  entry_.uc_stack.ss_size = kStackBytes - kGuardBytes;
  entry_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&entry_, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

Fiber::~Fiber() {
  munmap(stack_, kStackBytes);
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
  self->body_(self->context_);
}

void Fiber::resume() {
  __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_ + kGuardBytes, kStackBytes - kGuardBytes);
  if (_setjmp(caller_) == 0) {
    if (entered_) _longjmp(here_, 1);
    entered_ = true;
    setcontext(&entry_);
  }
  __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
}

void Fiber::pause() {
  __sanitizer_start_switch_fiber(&fake_stack_, caller_stack_, caller_stack_bytes_);
  change(here_, caller_);
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_stack_, &caller_stack_bytes_);
}

}  // namespace strata::device::emulation
