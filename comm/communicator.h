#pragma once
// comm/ is what ranks say to each other. A Communicator (here) has the collectives of one lane; a World is a rank's
// view of the run: communicators, memory that others can reach, blocking exchanges for set-up, and how a run ends when
// one rank fails. connect.cc chooses among solo, threads of one process, mpi/ (shared memory within a node, messages
// between nodes) and nccl/. agreement.h makes a mistake of one rank everybody's, said once; same_files.h compares what
// ranks read. The order in which gradients are added is not decided here: an all-to-all brings pieces, and
// device/ops/step/gradient_sum.h adds them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/abort.h"
#include "comm/group.h"
#include "device/lane.h"
#include "device/memory.h"

namespace strata::comm {

// A range of a flat buffer that `ranks` ranks hold in equal shards: rank r owns the flat bytes
// [r * shard_bytes, (r + 1) * shard_bytes). [begin, end) may be any part of it: a whole unit, or one tile of it.
struct ShardedRange {
  std::size_t shard_bytes;
  std::size_t begin, end;

  std::size_t bytes() const { return end - begin; }
  // What rank r owns of the range, in flat bytes; empty (begin == end) if it owns nothing.
  struct Owned {
    std::size_t begin, end;
    std::size_t bytes() const { return end - begin; }
  };
  Owned owned(int rank) const;
};

// Bytes that this rank sent to others, by kind of collective, since the last reset.
struct CommBytes {
  std::uint64_t all_gather = 0, all_to_all = 0, broadcast = 0, consensus = 0;
  std::uint64_t total() const { return all_gather + all_to_all + broadcast + consensus; }
  // The mean of a step, after `steps` alike.
  CommBytes per_step(std::int64_t steps) const {
    const auto n = static_cast<std::uint64_t>(steps > 0 ? steps : 1);
    return {all_gather / n, all_to_all / n, broadcast / n, consensus / n};
  }
};

// The collectives of one group of ranks (group.h) on one lane; rank() and `r` are places in the group, not in the
// world. All ranks of the group issue the same collectives in the same order on the communicators that they opened in
// the same order. Nothing blocks the caller: work is queued in the lane. Waits end with Aborted when the run's token is
// set. Buffers are device memory, in an arena that the World allocated, and stay untouched until the work has run.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual device::Lane& lane() const = 0;

  // out[0 .. range.bytes()) = flat[begin .. end), each rank giving what it owns of it; `shard` is this rank's whole
  // shard. The piece at its own place in `out` may be the shard's own memory (in place).
  virtual void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) = 0;

  // Sends to each rank its piece of this rank's `range` (in[0 .. range.bytes())). When the work has run, `pieces` (an
  // array of size() pointers, owned by the caller) points at each rank's copy of this rank's own piece, in the order of
  // the world's ranks, whatever the group's: sums must not depend on who owns what. They lie in `staging` (size() *
  // piece bytes), or wherever the backend can read them in place, and stay valid until release(), which every
  // all_to_all is followed by on this lane.
  virtual void all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                          const std::byte** pieces) = 0;
  virtual void release() = 0;

  // Every rank's `bytes` bytes at `mine` (at most kMaxExchange), in rank order, at `all`: the step's consensus.
  virtual void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) = 0;
  static constexpr std::size_t kMaxExchange = 2048;

  // root's `bytes` bytes at `data`, to all.
  virtual void broadcast(std::byte* data, std::size_t bytes, int root) = 0;

  // Whether all its work is the device's, so that a device::Graph can hold it: what changes from call to call, then, is
  // in memory alone.
  virtual bool can_be_recorded() const { return false; }

  // Bytes sent by this rank so far; exact once the lane is synchronized.
  virtual CommBytes sent() const = 0;
};

// The ranks of a run, seen from one of them: opens communicators, allocates memory that collectives can reach, and
// offers the few blocking exchanges that set-up needs. Made by connect(); one host thread uses it.
class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Ranks on this rank's node, itself included, and this rank's place among them.
  virtual int node_size() const = 0;
  virtual int node_rank() const = 0;
  // "one rank without mpirun", "threads", "mpi (shared memory)", "mpi (messages)".
  virtual std::string describe() const = 0;
  virtual AbortToken& abort_token() = 0;

  // Collective: an arena of `bytes` (the same on all ranks) of the device's memory whose buffers collectives may use.
  device::Arena allocate(std::size_t bytes, device::Device device = {}) {
    return device.kind == device::Kind::cpu ? allocate_host(bytes) : allocate_device(bytes, device);
  }
  // Collective: a communicator over all ranks, or over those of a group, whose work runs in `lane`.
  std::unique_ptr<Communicator> open(device::Lane& lane) { return open(lane, all_ranks(rank(), size())); }
  virtual std::unique_ptr<Communicator> open(device::Lane& lane, const Group& group) = 0;

  // Blocking, for set-up and the end: gathers every rank's text; result[r] is rank r's.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  void barrier() { (void)exchange(""); }

  // Bytes of other ranks' memory that this rank's resident set counts, having read them in place and not
  // let go (shared memory between processes; else 0). Reads /proc/self/smaps: for tests.
  virtual std::size_t borrowed_bytes() const { return 0; }

  // Collective: the end of a run that did well. Returns once all ranks have come to it; throws Aborted, naming the
  // rank, if one died before, or is on another node and does not come. The destructor leaves too, and says nothing.
  virtual void leave() {}

  // Sets the abort token if another rank has failed or is gone; waits of the world's own do so anyway. Any thread.
  virtual void look_after_peers() {}
  // Tells the other ranks that this one failed, so that their waits end; returns at once. The first cause wins.
  virtual void report_failure(const std::string& cause, Exit code) = 0;
  // What ended the run: the first cause, where the ranks could agree on one.
  virtual Failure failure() { return abort_token().failure(); }
  // A failure is told once: true on the rank that failed first, and if it died or left without a word, on the
  // lowest rank that is left on each node.
  bool speaks() {
    const Failure first = failure();
    return first.rank == rank() || (!first.told && lowest_left());
  }
  virtual bool lowest_left() const { return rank() == 0; }

 protected:
  // Collective: the host's memory, which other ranks reach if they can.
  virtual device::Arena allocate_host(std::size_t bytes) = 0;
  virtual device::Arena allocate_device(std::size_t bytes, device::Device device) {
    return device::Arena(bytes, device);
  }
};

enum class Backend : std::uint8_t { automatic, solo, threads, mpi, nccl };
enum class Transport : std::uint8_t { automatic, shared_memory, messages };

// This process's world: solo without mpirun, MPI under it (Open MPI's or Slurm's environment); initialises MPI when it
// is needed. Transport::messages forces messages between ranks that could share memory.
// Throws Error{usage} if the backend asked for does not fit how the program was started.
std::unique_ptr<World> connect(Backend backend, Transport transport);

// Throws Error{usage} if connect() would refuse the backend on every rank.
void require_possible(Backend backend);
// This process's rank as its launcher gives it, before there is a world, and how many it started; 0 without one.
int launched_rank();
int launched_ranks();

// A world of one rank.
std::unique_ptr<World> solo_world();
// Runs f(world) on `ranks` threads, each a rank of one world; rethrows the first rank's exception. For tests,
// sanitizers and debuggers.
void run_threads(int ranks, const std::function<void(World&)>& f);

}  // namespace strata::comm
