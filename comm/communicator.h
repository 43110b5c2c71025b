#pragma once
// comm/ lets ranks communicate. A Communicator (this header) has the collectives of one lane. A World is a rank's view
// of the run: communicators, memory that other ranks can reach, blocking exchanges for set-up, and the end of a run
// when a rank fails. connect.cc chooses among solo, mpi/ (shared memory within a node, messages between nodes) and
// nccl/; tests run ranks as threads (tests/comm/run_threads.h). agreement.h turns one rank's error into an error of all
// ranks that is printed once. same_files.h checks that all ranks read the same files. The order in which gradients are
// added is not decided here: an all-to-all delivers the pieces, and device/ops/step/gradient_sum.h adds them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/abort.h"
#include "comm/group.h"
#include "device/lane.h"
#include "device/memory.h"

namespace strata::comm {

// A range of a flat buffer that `ranks` ranks hold in equal shards: rank r owns the flat bytes [r * shard_bytes, (r +
// 1) * shard_bytes). [begin, end) may be any part of the buffer: a complete unit, or one tile of it.
struct ShardedRange {
  std::size_t shard_bytes;
  std::size_t begin, end;

  std::size_t bytes() const { return end - begin; }
  // The part of the range that rank r owns, in flat bytes; empty (begin == end) if it owns none.
  struct Owned {
    std::size_t begin, end;
    std::size_t bytes() const { return end - begin; }
  };
  Owned owned(int rank) const;
};

// Bytes that this rank sent to others, by kind of collective.
struct CommBytes {
  std::uint64_t all_gather = 0, all_to_all = 0, broadcast = 0, consensus = 0, point_to_point = 0;
  std::uint64_t between_nodes = 0;  // the part of the above that went to other nodes
  std::uint64_t total() const { return all_gather + all_to_all + broadcast + consensus + point_to_point; }
  // The mean per step over `steps` equal steps.
  CommBytes per_step(std::int64_t steps) const {
    const auto n = static_cast<std::uint64_t>(steps > 0 ? steps : 1);
    return {all_gather / n, all_to_all / n, broadcast / n, consensus / n, point_to_point / n, between_nodes / n};
  }
  CommBytes& operator+=(const CommBytes& other) {
    all_gather += other.all_gather;
    all_to_all += other.all_to_all;
    broadcast += other.broadcast;
    consensus += other.consensus;
    point_to_point += other.point_to_point;
    between_nodes += other.between_nodes;
    return *this;
  }
  // The bytes sent since `earlier`.
  CommBytes since(const CommBytes& earlier) const {
    return {all_gather - earlier.all_gather,         all_to_all - earlier.all_to_all,
            broadcast - earlier.broadcast,           consensus - earlier.consensus,
            point_to_point - earlier.point_to_point, between_nodes - earlier.between_nodes};
  }
};

// The collectives of one group of ranks (group.h) on one lane, and messages between two of its ranks; rank() and `r`
// are places in the group, not in the world. All ranks of the group issue the same collectives in the same order on the
// communicators that they opened in the same order. Calls do not block: work is queued in the lane. Waits throw Aborted
// when the run's token is set. Buffers are device memory, in an arena that the World allocated, and must stay untouched
// until the work has run.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual device::Lane& lane() const = 0;

  // out[0 .. range.bytes()) = flat[begin .. end), to which each rank contributes the part that it owns. `shard` is this
  // rank's complete shard. This rank's piece of `out` may be the shard's own memory (in place).
  virtual void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) = 0;

  // Sends to each rank its piece of this rank's `range` (in[0 .. range.bytes())). When the work has run, `pieces` (an
  // array of size() pointers, owned by the caller) points to each rank's copy of this rank's own piece. The pointers
  // are in the order of the world's ranks, whatever the group's order is, because sums must not depend on which rank
  // owns what. The copies are in `staging` (size() * piece bytes), or wherever the backend can read them in place. They
  // stay valid until release(), which must follow every all_to_all on this lane.
  virtual void all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                          const std::byte** pieces) = 0;
  virtual void release() = 0;

  // Gathers `bytes` bytes at `mine` (at most kMaxExchange) from every rank into `all`, in rank order: the step's
  // consensus.
  virtual void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) = 0;
  static constexpr std::size_t kMaxExchange = 2048;

  // Sends root's `bytes` bytes at `data` to all ranks.
  virtual void broadcast(std::byte* data, std::size_t bytes, int root) = 0;

  // send() sends `bytes` bytes to rank `to` of the group, and receive() receives them from rank `from`. The n-th send
  // from one rank to another on this communicator matches the n-th receive there, of the same size. With 0 bytes, both
  // do nothing. Other ranks take no part. A send ends when its buffer can be reused, which can be as late as the end of
  // its receive. Ranks that send to each other use two communicators, one per direction, each with its own lane: in a
  // single lane, each rank's send could wait forever for a receive that is queued after the other rank's send.
  virtual void send(const std::byte* data, std::size_t bytes, int to) = 0;
  virtual void receive(std::byte* data, std::size_t bytes, int from) = 0;

  // Whether all its work runs on the device, so that a device::Graph can record it: calls then differ only in the
  // contents of memory.
  virtual bool can_be_recorded() const { return false; }

  // Bytes that this rank has sent; exact once the lane is synchronized.
  virtual CommBytes sent() const = 0;

 protected:
  bool is_peer(int other) const { return other >= 0 && other < size() && other != rank(); }
};

// One rank's view of all ranks of a run. Opens communicators, allocates memory that collectives can reach, and offers
// the few blocking exchanges that set-up needs. connect() makes it, and only one host thread uses it.
class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The number of ranks on this rank's node, and this rank's place among them.
  virtual int node_size() const = 0;
  virtual int node_rank() const = 0;
  // The node of each rank; nodes are numbered by their lowest ranks. Empty: all ranks are on one node.
  virtual std::vector<int> nodes() const { return {}; }
  // "one rank without mpirun", "mpi (shared memory)", "mpi (messages)", "nccl 2.21.5 over ...".
  virtual std::string describe() const = 0;
  virtual AbortToken& abort_token() = 0;

  // Collective: allocates an arena of `bytes` (the same on all ranks) in the device's memory. Collectives may use its
  // buffers.
  device::Arena allocate(std::size_t bytes, device::Device device = {}) {
    return device.kind == device::Kind::cpu ? allocate_host(bytes) : allocate_device(bytes, device);
  }
  // Collective: a communicator over all ranks, or over a group's ranks, whose work runs in `lane`.
  std::unique_ptr<Communicator> open(device::Lane& lane) { return open(lane, all_ranks(rank(), size())); }
  virtual std::unique_ptr<Communicator> open(device::Lane& lane, const Group& group) = 0;

  // Blocking, for set-up and the end: gathers every rank's text; result[r] is rank r's text.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  void barrier() { (void)exchange(""); }

  // Collective: ends a successful run. Returns once all ranks have called it. Throws an Aborted that names the rank if
  // one died earlier, or is on another node and does not call it. The destructor also leaves, but throws nothing.
  virtual void leave() {}

  // Sets the abort token if another rank has failed or ended. The world's own waits do so anyway. Any thread.
  virtual void check_peers() {}
  // Tells the other ranks that this one failed, so that their waits end. Returns immediately. The first cause wins.
  virtual void report_failure(const std::string& cause, Exit code) = 0;
  // The failure that ended the run: the first one, if the ranks could agree on it.
  virtual Failure failure() { return abort_token().failure(); }
  // Sets the callback that reports a rank lost without a message. On each node, the first rank that notices the loss
  // calls `print` immediately, on the thread that noticed, because mpirun ends all ranks soon after a loss, before a
  // run has unwound. Call this before the first collective. Only the ranks of a process's own node notice that it has
  // ended. If a rank left early or does not leave, ranks on several nodes may notice it. They cannot agree in time on
  // one of them, so each cause names the rank that noticed.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those that override it keep the function
  virtual void when_lost(std::function<void(const Failure&)>) {}
  // Whether this rank failed first, and so prints the failure.
  bool prints_failure() { return failure().rank == rank(); }

 protected:
  // Collective: allocates host memory, which other ranks can reach if the world supports it.
  virtual device::Arena allocate_host(std::size_t bytes) = 0;
  virtual device::Arena allocate_device(std::size_t bytes, device::Device device) {
    return device::Arena(bytes, device);
  }
};

enum class Backend : std::uint8_t { automatic, solo, mpi, nccl };
enum class Transport : std::uint8_t { automatic, shared_memory, messages };

// This process's world: solo without mpirun, MPI under it (detected from the environment of Open MPI or Slurm).
// Initialises MPI if it is needed. Transport::messages forces messages between ranks that could share memory. Throws
// Error{usage} if the requested backend does not fit the way the program was started.
std::unique_ptr<World> connect(Backend backend, Transport transport);

// Throws Error{usage} if connect() would refuse the backend on every rank.
void require_possible(Backend backend);
// The rank that the launcher assigned to this process, and the number of ranks that it started, before a world exists.
// Both are 0 if there is no launcher.
int launched_rank();
int launched_ranks();

// A world with one rank.
std::unique_ptr<World> solo_world();

}  // namespace strata::comm
