#include "comm/staged.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/host_work.h"
#include "comm/levels.h"
#include "device/memory.h"
#include "device/ops/elementwise.h"

namespace strata::comm {
namespace {

using device::cpu::Team;

// The size of the memory that a rank sends from, and of the memory that it receives into.
constexpr std::size_t kStaging = kStagedBytes / 2;
constexpr std::size_t kGrain = device::kBufferAlignment;

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
      add(between_nodes_, levels_.sent_to_all(bytes));
    });
  }

  void broadcast(std::byte* data, std::size_t bytes, int root) override {
    STRATA_CHECK_LT(root, size());
    host_work(lane_, [this, data, bytes, root](Team& team) {
      collectives_->broadcast(data, bytes, root, team);
      if (root != rank()) return;
      add(broadcast_, bytes * others());
      add(between_nodes_, levels_.sent_to_all(bytes));
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

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(device::Lane& lane, std::unique_ptr<Collectives> host, Levels levels, device::Arena staging)
      : lane_(lane),
        host_(std::move(host)),
        levels_(std::move(levels)),
        staging_(std::move(staging)),
        pin_(lane.device(), staging_.data(), staging_.size()),
        host_pieces_(index(host_->size())) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  device::Lane& lane() const override { return lane_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) override {
    for_parts(range, kStaging, [&](const ShardedRange& part) {
      const auto own = part.owned(rank());
      const std::size_t before = own.begin - index(rank()) * range.shard_bytes;
      move(in(), shard + before, own.bytes());
      host_work(lane_, [this, part, before](Team& team) { host_->all_gather(part, in() - before, received(), team); });
      move(out + (part.begin - range.begin), received(), part.bytes());
    });
    sent_.all_gather += range.owned(rank()).bytes() * others();
    sent_.between_nodes += levels_.gathered(range.owned(rank()).bytes());
  }

  // The pieces end up in the device's staging.
  void all_to_all(const ShardedRange& range, const std::byte* data, std::byte* staging,
                  const std::byte** pieces) override {
    const auto mine = range.owned(rank());
    for (int r = 0; r < size(); ++r) pieces[r] = staging + index(r) * mine.bytes();
    for_parts(range, kStaging / index(size()) / kGrain * kGrain, [&](const ShardedRange& part) {
      const auto own = part.owned(rank());
      move(in(), data + (part.begin - range.begin), part.bytes());
      host_work(lane_, [this, part, bytes = own.bytes()](Team&) { receive_pieces(part, bytes); });
      for (int r = 0; r < size(); ++r)
        move(staging + index(r) * mine.bytes() + (own.begin - mine.begin), received() + index(r) * own.bytes(),
             own.bytes());
    });
    sent_.all_to_all += range.bytes() - mine.bytes();
    sent_.between_nodes += levels_.exchanged(range);
  }
  void release() override {}

  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override {
    STRATA_CHECK_LE(bytes, kMaxExchange);
    move(in(), mine, bytes);
    host_work(lane_, [this, bytes](Team&) { host_->exchange(in(), bytes, received()); });
    move(all, received(), bytes * index(size()));
    sent_.consensus += bytes * others();
    sent_.between_nodes += levels_.sent_to_all(bytes);
  }

  void broadcast(std::byte* data, std::size_t bytes, int root) override {
    STRATA_CHECK_LT(root, size());
    for (std::size_t at = 0; at < bytes; at += kStaging) {
      const std::size_t part = std::min(kStaging, bytes - at);
      if (root == rank()) move(in(), data + at, part);
      host_work(lane_, [this, part, root](Team& team) { host_->broadcast(in(), part, root, team); });
      if (root != rank()) move(data + at, in(), part);
    }
    if (root != rank()) return;
    sent_.broadcast += bytes * others();
    sent_.between_nodes += levels_.sent_to_all(bytes);
  }

  void send(const std::byte* data, std::size_t bytes, int to) override {
    STRATA_CHECK(is_peer(to));
    for (std::size_t at = 0; at < bytes; at += kStaging) {
      const std::size_t part = std::min(kStaging, bytes - at);
      move(in(), data + at, part);
      host_work(lane_, [this, part, to](Team&) { host_->send(in(), part, to); });
    }
    sent_.point_to_point += bytes;
    sent_.between_nodes += levels_.sent(bytes, to);
  }

  void receive(std::byte* data, std::size_t bytes, int from) override {
    STRATA_CHECK(is_peer(from));
    for (std::size_t at = 0; at < bytes; at += kStaging) {
      const std::size_t part = std::min(kStaging, bytes - at);
      host_work(lane_, [this, part, from](Team& team) { host_->receive(received(), part, from, team); });
      move(data + at, received(), part);
    }
  }

  CommBytes sent() const override { return sent_; }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::uint64_t others() const { return static_cast<std::uint64_t>(size() - 1); }
  std::byte* in() const { return staging_.data(); }
  std::byte* received() const { return staging_.data() + kStaging; }

  // Moves bytes in the lane's order.
  void move(std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr device::DType kNarrow = device::DType::bf16;
    STRATA_CHECK_EQ(bytes % size_of(kNarrow), 0u);
    if (bytes == 0) return;
    const std::size_t count = bytes / size_of(kNarrow);
    device::cast(lane_, device::ConstView{from, count, kNarrow}, device::View{to, count, kNarrow});
  }

  // Runs on the host and copies the pieces next to each other in received(). Their places are known only now, and other
  // ranks may overwrite them after the release.
  void receive_pieces(const ShardedRange& part, std::size_t bytes) {
    host_->all_to_all(part, in(), received(), host_pieces_.data());
    for (std::size_t r = 0; bytes > 0 && r < host_pieces_.size(); ++r)
      if (std::byte* const to = received() + r * bytes; to != host_pieces_[r]) std::memcpy(to, host_pieces_[r], bytes);
    host_->release();
  }

  // All ranks cut a range in the same way.
  template <typename F>
  static void for_parts(const ShardedRange& range, std::size_t most, F&& f) {
    for (std::size_t at = range.begin; at < range.end; at += most)
      f(ShardedRange{range.shard_bytes, at, std::min(range.end, at + most)});
  }

  device::Lane& lane_;
  std::unique_ptr<Collectives> host_;
  const Levels levels_;
  device::Arena staging_;
  device::Pin pin_;  // unpinned before the staging is freed
  std::vector<const std::byte*> host_pieces_;
  CommBytes sent_;
};

}  // namespace

std::unique_ptr<Communicator> communicator_for(World& world, device::Lane& lane, const Group& group,
                                               std::unique_ptr<Collectives> collectives) {
  Levels levels(group, world.nodes());
  if (lane.device().kind == device::Kind::cpu)
    return std::make_unique<LaneCommunicator>(lane, std::move(collectives), std::move(levels));
  STRATA_CHECK_LE(collectives->size(), static_cast<int>(kStaging / kGrain));
  return std::make_unique<StagedCommunicator>(lane, std::move(collectives), std::move(levels),
                                              world.allocate(2 * kStaging));
}

}  // namespace strata::comm
