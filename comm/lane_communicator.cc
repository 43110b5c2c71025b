#include "comm/lane_communicator.h"

#include <atomic>
#include <utility>

#include "base/error.h"
#include "comm/host_work.h"

namespace strata::comm {
namespace {

using device::cpu::Team;

// The counts are the bytes that other ranks receive from this one, however the backend moves them. So they are the same
// for every backend, and the planner can predict them.
class LaneCommunicator final : public Communicator {
 public:
  LaneCommunicator(device::Lane& lane, std::unique_ptr<Collectives> collectives, Levels levels)
      : lane_(lane), collectives_(std::move(collectives)), levels_(std::move(levels)) {}

  int rank() const override { return collectives_->rank(); }
  int size() const override { return collectives_->size(); }
  device::Lane& lane() const override { return lane_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) override {
    host_work(lane_, [this, range, shard, out](Team& team) {
      collectives_->all_gather(range, shard, out, team);
      const std::uint64_t own = range.owned(rank()).bytes();
      add(all_gather_, own * others());
      add(between_nodes_, levels_.gathered(own));
    });
  }

  void all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                  const std::byte** pieces) override {
    host_work(lane_, [this, range, in, staging, pieces](Team&) {
      collectives_->all_to_all(range, in, staging, pieces);
      add(all_to_all_, range.bytes() - range.owned(rank()).bytes());
      add(between_nodes_, levels_.exchanged(range));
    });
  }

  void release() override {
    host_work(lane_, [this](Team&) { collectives_->release(); });
  }

  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override {
    STRATA_CHECK_LE(bytes, kMaxExchange);
    host_work(lane_, [this, mine, bytes, all](Team&) {
      collectives_->exchange(mine, bytes, all);
      add(consensus_, bytes * others());
      add(between_nodes_, levels_.told(bytes));
    });
  }

  void broadcast(std::byte* data, std::size_t bytes, int root) override {
    STRATA_CHECK_LT(root, size());
    host_work(lane_, [this, data, bytes, root](Team& team) {
      collectives_->broadcast(data, bytes, root, team);
      if (root != rank()) return;
      add(broadcast_, bytes * others());
      add(between_nodes_, levels_.told(bytes));
    });
  }

  void send(const std::byte* data, std::size_t bytes, int to) override {
    STRATA_CHECK(is_peer(to));
    if (bytes == 0) return;
    host_work(lane_, [this, data, bytes, to](Team&) {
      collectives_->send(data, bytes, to);
      add(point_to_point_, bytes);
      add(between_nodes_, levels_.sent(bytes, to));
    });
  }

  void receive(std::byte* data, std::size_t bytes, int from) override {
    STRATA_CHECK(is_peer(from));
    if (bytes == 0) return;
    host_work(lane_, [this, data, bytes, from](Team& team) { collectives_->receive(data, bytes, from, team); });
  }

  CommBytes sent() const override {
    return {all_gather_.load(std::memory_order_relaxed),     all_to_all_.load(std::memory_order_relaxed),
            broadcast_.load(std::memory_order_relaxed),      consensus_.load(std::memory_order_relaxed),
            point_to_point_.load(std::memory_order_relaxed), between_nodes_.load(std::memory_order_relaxed)};
  }

 private:
  using Count = std::atomic<std::uint64_t>;
  static void add(Count& count, std::uint64_t bytes) { count.fetch_add(bytes, std::memory_order_relaxed); }
  std::uint64_t others() const { return static_cast<std::uint64_t>(size() - 1); }

  device::Lane& lane_;
  std::unique_ptr<Collectives> collectives_;
  const Levels levels_;
  Count all_gather_{0}, all_to_all_{0}, broadcast_{0}, consensus_{0}, point_to_point_{0}, between_nodes_{0};
};

}  // namespace

std::unique_ptr<Communicator> queue_in_lane(device::Lane& lane, std::unique_ptr<Collectives> collectives,
                                            Levels levels) {
  return std::make_unique<LaneCommunicator>(lane, std::move(collectives), std::move(levels));
}

}  // namespace strata::comm
