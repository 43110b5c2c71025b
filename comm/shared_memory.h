#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/abort.h"
#include "comm/collectives.h"
#include "comm/control_block.h"
#include "comm/process.h"

namespace strata::comm {

// One rank's end of the shared memory of a group of ranks: threads of this process, or processes of this node. Reads
// other ranks' buffers where they lie. Owns neither the control block nor the arenas.
class SharedMemory {
 public:
  // `peers`: the other ranks' processes, to be looked after in waits; empty for threads.
  SharedMemory(ControlBlock control, int rank, AbortToken& token, std::vector<Process> peers);
  ~SharedMemory();  // leaves the group
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const { return rank_; }
  int size() const { return control_.ranks(); }

  // The next arena of every rank, as this rank sees them: bases[r] is the start of rank r's `bytes` bytes.
  void add_arena(std::size_t bytes, const std::vector<const std::byte*>& bases);
  // Where a buffer of this rank lies; it must be in one of its arenas.
  Place locate(const std::byte* data, std::size_t bytes) const;
  const std::byte* reach(int rank, Place place) const { return arenas_[place.arena].bases[index(rank)] + place.offset; }
  // After `bytes` there were read: another process's pages leave this one's resident set, which would come to hold
  // those of all ranks. Small pieces stay: finding their pages again would take longer than reading them.
  void let_go(int rank, const std::byte* data, std::size_t bytes) const;

  // The collectives of the next channel, which groups without a common member share; the first is the World's own.
  // `lets_go`: of other ranks' pages once a
  // release() says that they were read, which is of no use if everything goes through the same few.
  std::unique_ptr<Collectives> open(const Group& group, bool lets_go);
  const ControlBlock& control() const { return control_; }

  // Until `signal` of rank `peer` has reached `target`; throws Aborted if that cannot come any more.
  void wait(const Signal& signal, std::uint32_t target, int peer) const;
  // Sets the abort token where the group has failed or a rank's process is gone. Any thread.
  void look_after_peers() const;
  void report_failure(const std::string& cause, Exit code) const;
  // What ended the run, as the group has agreed, else as this rank knows it.
  Failure failure() const;
  // True if no lower rank is left.
  bool lowest_left() const;
  // The end of a run: this rank leaves, and waits until the others have left too. False, with the abort token set,
  // if one of them died, or after a failure did not leave within some seconds.
  bool leave_together() const;

 private:
  static constexpr std::size_t kMaxArenas = 64;
  struct ArenaOfAll {
    std::size_t bytes = 0;
    std::vector<const std::byte*> bases;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void poll(bool look_after_peers) const;
  void fail_with(const Failure& failure) const;
  [[noreturn]] void end_with_failure(const Failure& failure) const;

  ControlBlock control_;
  int rank_;
  AbortToken& token_;
  std::vector<Process> peers_;
  int channels_ = 0;
  // Of fixed size: lanes read the entries of earlier arenas while the host adds another.
  std::array<ArenaOfAll, kMaxArenas> arenas_;
  std::atomic<std::size_t> arena_count_{0};
};

}  // namespace strata::comm
