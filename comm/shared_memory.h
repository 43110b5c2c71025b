#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/abort.h"
#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/process.h"

namespace strata::comm {

inline constexpr std::size_t kCacheLine = 64;
// One for the World's own exchanges, the others for communicators in the order of open().
inline constexpr int kChannels = 24;

// A counter that one rank raises and others sleep on, in memory that processes may share. `sleepers` saves the system
// call if no rank sleeps.
struct alignas(kCacheLine) Signal {
  std::atomic<std::uint32_t> count{0};
  mutable std::atomic<std::uint32_t> sleepers{0};

  void raise(std::uint32_t to);
  // Counters wrap. A rank is never 2^31 collectives ahead.
  bool reached(std::uint32_t target) const {
    return static_cast<std::int32_t>(count.load(std::memory_order_acquire) - target) >= 0;
  }
  // Spins for some microseconds. True once the target is reached.
  bool spin(std::uint32_t target) const;
  // Sleeps until the counter changes, for at most 50 ms.
  void sleep(std::uint32_t target) const;
};

// A rank's buffer: the number of its arena in the order of the World's allocations, and its offset in it.
struct Place {
  std::uint64_t arena, offset;
};

// One rank's part of one channel; only this rank writes it. `message` has two halves used in turn. A rank overwrites a
// half only after all ranks have arrived at the exchange in between, and so have read it.
struct RankSlot {
  Signal arrived, finished;
  alignas(kCacheLine) Place place{};
  alignas(kCacheLine) std::byte message[2][Communicator::kMaxExchange];
};

// Messages from one rank to another in one channel. The sender writes a message's place and raises `offered` to its
// number. The receiver copies it and raises `taken`.
struct PairSlot {
  Signal offered, taken;
  alignas(kCacheLine) Place place{};
  std::uint64_t bytes = 0;
};

// The state that the ranks of a node share besides their buffers: signals, small messages, and the first failure. This
// is a view; the World owns the memory.
class ControlBlock {
 public:
  static std::size_t bytes(int ranks);
  // Constructs the objects in `memory`. One rank calls it before any other attaches.
  static ControlBlock construct(std::byte* memory, int ranks);
  static ControlBlock attach(std::byte* memory, int ranks);

  int ranks() const { return ranks_; }
  RankSlot& slot(int channel, int rank) const { return slots_[channel * ranks_ + rank]; }
  PairSlot& pair(int channel, int from, int to) const { return pairs_[(channel * ranks_ + from) * ranks_ + to]; }

  // True for the first report, which wins. Its cause is a sentence that names the rank. Afterwards failed() is true,
  // unless the first rank died while it wrote its cause.
  bool report_failure(const Failure& failure) const;
  bool failed() const;
  Failure failure() const;

  // Called when a rank's World is destroyed: the rank will not raise any signal again.
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

// One rank's end of the shared memory of a group of ranks, which are threads of this process or processes of this node.
// Reads other ranks' buffers in place. Owns neither the control block nor the arenas.
class SharedMemory {
 public:
  // `peers`: the other ranks' processes, which waits check; empty for threads.
  SharedMemory(ControlBlock control, int rank, AbortToken& token, std::vector<Process> peers);
  ~SharedMemory();  // leaves the group
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const { return rank_; }
  int size() const { return control_.ranks(); }

  // Adds the next arena of every rank, as this rank sees them: bases[r] is the start of rank r's `bytes` bytes.
  void add_arena(std::size_t bytes, const std::vector<const std::byte*>& bases);
  // The place of a buffer of this rank, which must be in one of its arenas.
  Place locate(const std::byte* data, std::size_t bytes) const;
  const std::byte* reach(int rank, Place place) const { return arenas_[place.arena].bases[index(rank)] + place.offset; }
  // Call it after reading `bytes` bytes there. Removes another process's pages from this rank's resident set, which
  // would otherwise grow to the pages of all ranks. Small pieces stay, because finding their pages again would take
  // longer than reading them.
  void release_pages(int rank, const std::byte* data, std::size_t bytes) const;

  // Opens the collectives of the next channel. Groups without a common member share a channel, and the first channel is
  // the World's own. `releases_pages`: drop other ranks' pages from the resident set after release(). That is useless
  // if all data goes through the same few pages.
  std::unique_ptr<Collectives> open(const Group& group, bool releases_pages);
  const ControlBlock& control() const { return control_; }

  // Waits until `signal` of rank `peer` has reached `target`. Throws Aborted if it never will.
  void wait(const Signal& signal, std::uint32_t target, int peer) const;
  // See World::when_lost().
  void when_lost(std::function<void(const Failure&)> print) { print_loss_ = std::move(print); }
  // Sets the abort token if the group has failed or a rank's process has ended. Any thread.
  void check_peers() const;
  void report_failure(const std::string& cause, Exit code) const;
  // The failure that ended the run: the one that the group has agreed on, otherwise the one that this rank knows.
  Failure failure() const;
  // Ends the run: this rank leaves, and waits until the others have left too. False, with the abort token set, if one
  // of them died, or did not leave within some seconds of a failure.
  bool leave_together() const;

 private:
  static constexpr std::size_t kMaxArenas = 64;
  struct ArenaOfAll {
    std::size_t bytes = 0;
    std::vector<const std::byte*> bases;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void poll(bool check_peers) const;
  void fail_with(const Failure& failure) const;
  [[noreturn]] void end_with_failure(const Failure& failure) const;

  ControlBlock control_;
  int rank_;
  AbortToken& token_;
  std::function<void(const Failure&)> print_loss_;
  std::vector<Process> peers_;
  int channels_ = 0;
  // The size is fixed because lanes read the entries of earlier arenas while the host adds another.
  std::array<ArenaOfAll, kMaxArenas> arenas_;
  std::atomic<std::size_t> arena_count_{0};
};

}  // namespace strata::comm
