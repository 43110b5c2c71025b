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
  // Called after `bytes` were read there. Removes another process's pages from this rank's resident set, which would
  // otherwise grow to those of all ranks. Small pieces stay: finding their pages again would take longer than reading
  // them.
  void let_go(int rank, const std::byte* data, std::size_t bytes) const;

  // Opens the collectives of the next channel; groups without a common member share a channel, and the first is the
  // World's own. `lets_go`: drop other ranks' pages from the resident set after release(). That is useless if all data
  // goes through the same few pages.
  std::unique_ptr<Collectives> open(const Group& group, bool lets_go);
  const ControlBlock& control() const { return control_; }

  // Waits until `signal` of rank `peer` has reached `target`. Throws Aborted if it never will.
  void wait(const Signal& signal, std::uint32_t target, int peer) const;
  // Sets the abort token if the group has failed or a rank's process is gone. Any thread.
  void look_after_peers() const;
  void report_failure(const std::string& cause, Exit code) const;
  // What ended the run, as the group has agreed, or else as far as this rank knows.
  Failure failure() const;
  // True if this is the lowest rank left.
  bool lowest_left() const;
  // The end of a run: this rank leaves, and waits until the others have left too. False, with the abort token set, if
  // one of them died, or did not leave within some seconds of a failure.
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
  // The size is fixed because lanes read the entries of earlier arenas while the host adds another.
  std::array<ArenaOfAll, kMaxArenas> arenas_;
  std::atomic<std::size_t> arena_count_{0};
};

}  // namespace strata::comm
