#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/abort.h"
#include "comm/communicator.h"

namespace strata::comm {

inline constexpr std::size_t kCacheLine = 64;
// One for the World's own exchanges, the others for communicators in the order of open().
inline constexpr int kChannels = 24;

// A counter that one rank raises and others sleep on, in memory that processes may share. `sleepers` saves the system
// call when nobody sleeps.
struct alignas(kCacheLine) Signal {
  std::atomic<std::uint32_t> count{0};
  mutable std::atomic<std::uint32_t> sleepers{0};

  void raise(std::uint32_t to);
  // Counters wrap. A rank is never 2^31 collectives ahead.
  bool reached(std::uint32_t target) const {
    return static_cast<std::int32_t>(count.load(std::memory_order_acquire) - target) >= 0;
  }
  // Spins for some microseconds.
  bool spin(std::uint32_t target) const;
  // Sleeps until the counter changes or some 50 ms have passed.
  void doze(std::uint32_t target) const;
};

// A rank's buffer: the number of its arena in the order of the World's allocations, and its offset in it.
struct Place {
  std::uint64_t arena, offset;
};

// One rank's part of one channel. Only its rank writes it. `message` has two halves used in turn: a rank writes one
// again only after all ranks have arrived at the exchange in between, so all have read it.
struct RankSlot {
  Signal arrived, finished;
  alignas(kCacheLine) Place place{};
  alignas(kCacheLine) std::byte message[2][Communicator::kMaxExchange];
};

// Messages from one rank to another in one channel. The sender states a message's place and raises `offered` to its
// number. The receiver copies it and raises `taken`.
struct PairSlot {
  Signal offered, taken;
  alignas(kCacheLine) Place place{};
  std::uint64_t bytes = 0;
};

// What the ranks of a node share besides their buffers: signals, small messages, and the first failure. This is a view;
// the World owns the memory.
class ControlBlock {
 public:
  static std::size_t bytes(int ranks);
  // Makes the objects in `memory`. One rank calls it, before any other attaches.
  static ControlBlock construct(std::byte* memory, int ranks);
  static ControlBlock attach(std::byte* memory, int ranks);

  int ranks() const { return ranks_; }
  RankSlot& slot(int channel, int rank) const { return slots_[channel * ranks_ + rank]; }
  PairSlot& pair(int channel, int from, int to) const { return pairs_[(channel * ranks_ + from) * ranks_ + to]; }

  // The first report wins. Its cause is a sentence that names the rank. Afterwards failed() is true, unless the first
  // rank died while it wrote its cause.
  void report_failure(const Failure& failure) const;
  bool failed() const;
  Failure failure() const;

  // Called when a rank's World ends: the rank will not raise any signal again.
  void leave(int rank) const;
  bool left(int rank) const;

 private:
  struct Header;
  struct Presence;
  ControlBlock(std::byte* memory, int ranks);

  Header* header_;
  Presence* presence_;
  RankSlot* slots_;
  PairSlot* pairs_;
  int ranks_;
};

}  // namespace strata::comm
