#include "tests/device/emulation/block.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/device/emulation/fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// shared_memory.ld
extern "C" std::byte strata_shared_begin[], strata_shared_end[];

namespace strata::device::emulation {
namespace {

constexpr std::byte kGarbage{0xff};  // NaN, or the largest unsigned number
constexpr unsigned kWarp = 32, kWarps = 1024 / kWarp;
// Bytes after the requested dynamic shared memory that are checked for writes.
constexpr std::size_t kWatched = 1024;

alignas(1024) std::byte dynamic_memory[kSharedLimit + kWatched];

// The shared memory of all kernels, filled with garbage between blocks. The first block shows which part its kernel
// uses, and later blocks fill only that. Words are volatile, because AddressSanitizer, whose guards lie between the
// variables, intercepts memset.
class StaticShared {
 public:
  [[gnu::no_sanitize_address]] void renew() {
    if (first_ == last_) {
      for (first_ = begin_; first_ != end_ && *first_ == kGarbageWord;) ++first_;
      for (last_ = end_; last_ != first_ && last_[-1] == kGarbageWord;) --last_;
    }
    fill(first_, last_);
  }
  void renew_all() {
    fill(begin_, end_);
    first_ = last_ = begin_;
  }

 private:
  using Word = volatile std::uint64_t;
  static constexpr std::uint64_t kGarbageWord = ~std::uint64_t{0};

  [[gnu::no_sanitize_address]] static void fill(Word* at, Word* end) {
    while (at != end) *at++ = kGarbageWord;
  }

  Word* const begin_ = reinterpret_cast<Word*>(strata_shared_begin);
  Word* const end_ = reinterpret_cast<Word*>(strata_shared_end);
  Word *first_ = begin_, *last_ = begin_;
};

std::string line_of(const std::source_location& where) {
  const std::string file = where.file_name();
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), where.line());
}

// Runs the threads of one block at a time.
class Machine {
 public:
  void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel);

  // These are called by the running thread.
  void sync_block(std::source_location where);
  std::uint64_t exchange(unsigned mask, WarpOp op, std::uint64_t value, unsigned from, std::source_location where);
  [[noreturn]] void fault(std::string what);
  void copy_async(Bytes16* to, const Bytes16* from, bool zeros);
  void end_copy_group() { ++threads_[running_].groups; }
  void await_copies(unsigned in_flight);
  unsigned lane() const { return running_ % kWarp; }

 private:
  enum class State { fresh, ready, at_barrier, in_exchange, left };
  struct Thread {
    State state = State::fresh;
    uint3 index{};
    Fiber* fiber = nullptr;
    std::source_location where;  // it waits
    // The exchange in which the thread waits.
    unsigned mask = 0, from = 0;
    WarpOp op{};
    std::uint64_t value = 0, result = 0;
    unsigned groups = 0;  // of copies, ended
  };
  struct Copy {
    unsigned thread, group;
    Bytes16* to;
    const Bytes16* from;
    bool zeros;
    void run() const { *to = zeros ? Bytes16{} : *from; }
  };

  void run_block();
  void run_warp(unsigned warp);
  void release_barrier();
  void complete_exchange(unsigned first, unsigned mask);
  void resume(unsigned thread);
  void pause(State);
  [[noreturn]] void stop(unsigned thread, const std::string& what);
  static void thread_body(void* self);

  const std::function<void()>* kernel_ = nullptr;
  std::vector<Thread> threads_;
  unsigned waiting_[kWarps] = {};  // lanes of each warp that have come to an exchange
  unsigned running_ = 0;
  std::vector<Copy> copies_;  // on their way
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::optional<std::string> fault_;
  StaticShared static_shared_;
  std::minstd_rand random_;
};

void Machine::thread_body(void* self) {
  auto& machine = *static_cast<Machine*>(self);
  for (;;) {
    (*machine.kernel_)();
    machine.pause(State::left);
  }
}

void Machine::pause(State state) {
  Thread& t = threads_[running_];
  t.state = state;
  t.fiber->pause();
}

void Machine::fault(std::string what) {
  fault_ = std::move(what);
  pause(State::left);
  __builtin_unreachable();
}

void Machine::stop(unsigned thread, const std::string& what) {
  // The threads' stacks are not unwound, because kernels own nothing.
  idle_.clear();
  fibers_.clear();
  fault_.reset();
  const uint3 b = blockIdx, t = threads_[thread].index;
  fail(Exit::failed, "emulated kernel: block ({}, {}, {}), thread ({}, {}, {}) {}", b.x, b.y, b.z, t.x, t.y, t.z, what);
}

void Machine::resume(unsigned thread) {
  Thread& t = threads_[thread];
  if (!t.fiber) {
    if (idle_.empty()) idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>(thread_body, this)).get());
    t.fiber = idle_.back();
    idle_.pop_back();
  }
  running_ = thread;
  threadIdx = t.index;
  t.fiber->resume();
  if (fault_) stop(thread, std::string(*fault_));
  if (t.state == State::left) idle_.push_back(std::exchange(t.fiber, nullptr));
}

void Machine::sync_block(std::source_location where) {
  threads_[running_].where = where;
  pause(State::at_barrier);
}

std::uint64_t Machine::exchange(unsigned mask, WarpOp op, std::uint64_t value, unsigned from,
                                std::source_location where) {
  Thread& self = threads_[running_];
  const unsigned first = running_ / kWarp * kWarp;
  if (!(mask >> lane() & 1))
    fault(fmt::format("calls an exchange of lanes {:#x} at {}, of which it is none", mask, line_of(where)));
  if (const unsigned lanes = static_cast<unsigned>(threads_.size()) - first; lanes < kWarp && mask >> lanes != 0)
    fault(fmt::format("exchanges among lanes {:#x} at {}, the warp has {}", mask, line_of(where), lanes));
  if (op == WarpOp::shuffle && !(mask >> from & 1))
    fault(fmt::format("reads from lane {} at {}, which is none of lanes {:#x}", from, line_of(where), mask));
  self.where = where;
  self.mask = mask;
  self.op = op;
  self.value = value;
  self.from = from;
  waiting_[running_ / kWarp] |= 1u << lane();
  if ((waiting_[running_ / kWarp] & mask) == mask)
    complete_exchange(first, mask);
  else
    pause(State::in_exchange);
  return threads_[running_].result;
}

void Machine::complete_exchange(unsigned first, unsigned mask) {
  const Thread& last = threads_[running_];
  for (unsigned i = 0; i < kWarp; ++i) {
    const Thread& t = threads_[first + i];
    if (mask >> i & 1 && (t.mask != mask || t.op != last.op || t.where.line() != last.where.line()))
      fault(fmt::format("exchanges among lanes {:#x} at {}, lane {} among {:#x} at {}", mask, line_of(last.where), i,
                        t.mask, line_of(t.where)));
  }
  waiting_[first / kWarp] &= ~mask;
  std::uint64_t result = 0;
  bool begun = false;
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1)) continue;
    const Thread& t = threads_[first + i];
    const auto signed_min = [](std::uint64_t a, std::uint64_t b) {
      return static_cast<std::int32_t>(b) < static_cast<std::int32_t>(a) ? b : a;
    };
    const std::uint64_t so_far = begun ? result : t.value;
    switch (t.op) {
      case WarpOp::sync:
      case WarpOp::shuffle:
        break;
      case WarpOp::ballot:
        result |= t.value << i;
        continue;
      case WarpOp::add:
        result += t.value;
        break;
      case WarpOp::bit_xor:
        result ^= t.value;
        break;
      case WarpOp::bit_and:
        result = so_far & t.value;
        break;
      case WarpOp::bit_or:
        result = so_far | t.value;
        break;
      case WarpOp::min_unsigned:
        result = std::min(so_far, t.value);
        break;
      case WarpOp::max_unsigned:
        result = std::max(so_far, t.value);
        break;
      case WarpOp::min_signed:
        result = signed_min(so_far, t.value);
        break;
      case WarpOp::max_signed:
        result = signed_min(so_far, t.value) == so_far ? t.value : so_far;
        break;
    }
    begun = true;
  }
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1)) continue;
    Thread& t = threads_[first + i];
    t.result = t.op == WarpOp::shuffle ? threads_[first + t.from].value : result;
    t.state = State::ready;
  }
}

void Machine::copy_async(Bytes16* to, const Bytes16* from, bool zeros) {
  const Copy copy{running_, threads_[running_].groups, to, from, zeros};
  if (random_() % 2)
    copies_.push_back(copy);
  else
    copy.run();
}

void Machine::await_copies(unsigned in_flight) {
  const unsigned thread = running_, groups = threads_[thread].groups;
  std::erase_if(copies_, [&](const Copy& copy) {
    const bool awaited = copy.thread == thread && copy.group + in_flight < groups;
    if (awaited) copy.run();
    return awaited;
  });
}

void Machine::run_warp(unsigned warp) {
  const unsigned first = warp * kWarp;
  const unsigned count = std::min(kWarp, static_cast<unsigned>(threads_.size()) - first);
  for (bool progress = true; progress;) {
    progress = false;
    const unsigned turn = static_cast<unsigned>(random_()) % kWarp;
    for (unsigned i = 0; i < kWarp; ++i) {
      const unsigned lane = i ^ turn;
      if (lane >= count || threads_[first + lane].state > State::ready) continue;
      resume(first + lane);
      progress = true;
    }
  }
}

// All unfinished threads wait: each warp has run as far as it can by itself.
void Machine::release_barrier() {
  const Thread* barrier = nullptr;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    const Thread& t = threads_[i];
    if (t.state == State::in_exchange)
      stop(i, fmt::format("waits at {} for lanes {:#x}, some of which never come", line_of(t.where), t.mask));
    if (t.state != State::at_barrier) continue;
    if (barrier && barrier->where.line() != t.where.line())
      stop(i, fmt::format("waits at the barrier {}, others at {}", line_of(t.where), line_of(barrier->where)));
    barrier = &t;
  }
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state == State::left)
      stop(i, fmt::format("has left the kernel while others wait at the barrier {}", line_of(barrier->where)));
    threads_[i].state = State::ready;
  }
}

void Machine::run_block() {
  std::vector<unsigned> warps((threads_.size() + kWarp - 1) / kWarp);
  std::iota(warps.begin(), warps.end(), 0u);
  for (;;) {
    std::shuffle(warps.begin(), warps.end(), random_);
    for (const unsigned warp : warps) run_warp(warp);
    if (std::all_of(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state == State::left; })) return;
    release_barrier();
  }
}

void Machine::run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel) {
  kernel_ = &kernel;
  gridDim = grid;
  blockDim = block;
  random_.seed(1);
  std::vector<std::uint64_t> order(std::uint64_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  static_shared_.renew_all();
  for (const std::uint64_t at : order) {
    blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    std::fill(std::begin(waiting_), std::end(waiting_), 0u);
    copies_.clear();
    threads_.assign(std::size_t{block.x} * block.y * block.z, Thread{});
    for (unsigned i = 0; i < threads_.size(); ++i)
      threads_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    static_shared_.renew();
    std::fill_n(dynamic_memory, shared_bytes + kWatched, kGarbage);
    run_block();
    if (std::any_of(dynamic_memory + shared_bytes, dynamic_memory + shared_bytes + kWatched,
                    [](std::byte b) { return b != kGarbage; }))
      stop(0, fmt::format("or another of its block writes beyond the {} bytes of dynamic shared memory", shared_bytes));
  }
}

std::mutex one_kernel;
Machine& machine() {
  static Machine instance;
  return instance;
}

}  // namespace

void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel) {
  const std::lock_guard lock(one_kernel);
  machine().run(grid, block, shared_bytes, kernel);
}

std::byte* dynamic_shared_memory() {
  return dynamic_memory;
}
void sync_block(std::source_location where) {
  machine().sync_block(where);
}
std::uint64_t exchange(unsigned mask, WarpOp op, std::uint64_t value, unsigned from, std::source_location where) {
  return machine().exchange(mask, op, value, from, where);
}
void copy_async(Bytes16* to, const Bytes16* from, bool zeros) {
  machine().copy_async(to, from, zeros);
}
void end_copy_group() {
  machine().end_copy_group();
}
void await_copies(unsigned in_flight) {
  machine().await_copies(in_flight);
}
unsigned lane_index() {
  return machine().lane();
}

}  // namespace strata::device::emulation

void __trap() {
  strata::device::emulation::machine().fault("traps");
}
