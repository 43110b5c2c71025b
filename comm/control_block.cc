#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>

#include "comm/shared_memory.h"

namespace strata::comm {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

// Spins for about 20 us, then sleeps: with more ranks than cores, the rank that it waits for may need this core.
constexpr int kSpins = 400;
constexpr timespec kLongestSleep{0, 50'000'000};

// std::atomic::wait does not work here: its futex is private to the process.
void futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void Signal::raise(std::uint32_t to) {
  // Sequentially consistent, as in sleep(): either the sleeper sees the new count, or this thread sees the sleeper.
  count.store(to, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex(count, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Signal::spin(std::uint32_t target) const {
  for (int i = 0; i < kSpins; ++i) {
    if (reached(target)) return true;
    _mm_pause();
  }
  return false;
}

void Signal::sleep(std::uint32_t target) const {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t now = count.load(std::memory_order_seq_cst);
  if (static_cast<std::int32_t>(now - target) < 0) futex(count, FUTEX_WAIT, now, &kLongestSleep);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

struct ControlBlock::Header {
  enum : std::uint32_t { none, being_written, written };
  alignas(kCacheLine) std::atomic<std::uint32_t> state{none};
  int rank = -1;
  Exit code = Exit::failed;
  bool self_reported = true;
  char cause[1024] = {};
};

struct alignas(kCacheLine) ControlBlock::Presence {
  std::atomic<std::uint32_t> left{0};
};

std::size_t ControlBlock::bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return sizeof(Header) + n * (sizeof(Presence) + kChannels * (sizeof(RankSlot) + n * sizeof(PairSlot)));
}

ControlBlock::ControlBlock(std::byte* memory, int ranks)
    : header_(reinterpret_cast<Header*>(memory)),
      presence_(reinterpret_cast<Presence*>(memory + sizeof(Header))),
      slots_(reinterpret_cast<RankSlot*>(memory + sizeof(Header) + static_cast<std::size_t>(ranks) * sizeof(Presence))),
      pairs_(reinterpret_cast<PairSlot*>(slots_ + kChannels * ranks)),
      ranks_(ranks) {}

ControlBlock ControlBlock::construct(std::byte* memory, int ranks) {
  const ControlBlock block(memory, ranks);
  new (block.header_) Header;
  for (int rank = 0; rank < ranks; ++rank) new (block.presence_ + rank) Presence;
  for (int slot = 0; slot < kChannels * ranks; ++slot) new (block.slots_ + slot) RankSlot;
  for (int pair = 0; pair < kChannels * ranks * ranks; ++pair) new (block.pairs_ + pair) PairSlot;
  return block;
}

ControlBlock ControlBlock::attach(std::byte* memory, int ranks) {
  return {memory, ranks};
}

bool ControlBlock::report_failure(const Failure& failure) const {
  std::uint32_t expected = Header::none;
  if (!header_->state.compare_exchange_strong(expected, Header::being_written)) {
    // The first reporter needs a moment to write its cause. If it died while writing, it never will.
    for (int i = 0; i < 100 && !failed(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
  }
  header_->rank = failure.rank;
  header_->code = failure.code;
  header_->self_reported = failure.self_reported;
  const std::size_t size = std::min(failure.cause.size(), sizeof header_->cause - 1);
  std::memcpy(header_->cause, failure.cause.data(), size);
  header_->cause[size] = '\0';
  header_->state.store(Header::written, std::memory_order_release);
  return true;
}

bool ControlBlock::failed() const {
  return header_->state.load(std::memory_order_acquire) == Header::written;
}
Failure ControlBlock::failure() const {
  return {header_->rank, header_->cause, header_->code, header_->self_reported};
}

void ControlBlock::leave(int rank) const {
  presence_[rank].left.store(1, std::memory_order_release);
}
bool ControlBlock::left(int rank) const {
  return presence_[rank].left.load(std::memory_order_acquire) != 0;
}

}  // namespace strata::comm
