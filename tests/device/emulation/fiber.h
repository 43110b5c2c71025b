#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace strata::device::emulation {

// Runs body() repeatedly on a separate stack, which it owns. Each resume() continues from the last stop: at pause(), or
// between two runs.
class Fiber {
 public:
  // `body` and `context` outlive the fiber. body never returns; it calls pause() after each run.
  Fiber(void (*body)(void* context), void* context);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();  // called by the thread
  void pause();   // called by the body

 private:
  static void enter(unsigned high, unsigned low);

  void (*body_)(void*);
  void* context_;
  std::byte* stack_;
  bool entered_ = false;
  jmp_buf here_, caller_;
  ucontext_t entry_, unused_;
  // AddressSanitizer's state of the two stacks.
  void *fake_stack_ = nullptr, *caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
};

}  // namespace strata::device::emulation
