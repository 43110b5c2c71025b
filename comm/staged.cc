#include "comm/staged.h"

#include <algorithm>
#include <utility>

#include "device/memory.h"

namespace strata::comm {
namespace {

// Of the memory that a rank sends from and of that it receives in, each.
constexpr std::size_t kStaging = kStagedBytes / 2;
constexpr std::size_t kGrain = device::kBufferAlignment;

class StagedCollectives final : public Collectives {
 public:
  StagedCollectives(device::Device device, std::unique_ptr<Collectives> host, device::Arena staging)
      : device_(device),
        host_(std::move(host)),
        staging_(std::move(staging)),
        pin_(device, staging_.data(), staging_.size()),
        host_pieces_(index(host_->size())) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out, device::cpu::Team& team) override {
    for_parts(range, kStaging, [&](const ShardedRange& part) {
      const auto own = part.piece(rank());
      const std::size_t before = own.begin - index(rank()) * range.shard_bytes;
      if (own.bytes() > 0) device::copy(device_, in(), shard + before, own.bytes());
      host_->all_gather(part, in() - before, received(), team);
      device::copy(device_, out + (part.begin - range.begin), received(), part.bytes());
    });
  }

  // The pieces lie in the device's staging: where, the communicator knew when the work was issued.
  void all_to_all(const ShardedRange& range, const std::byte* data, std::byte* staging, const std::byte**) override {
    const auto mine = range.piece(rank());
    for_parts(range, kStaging / index(size()) / kGrain * kGrain, [&](const ShardedRange& part) {
      device::copy(device_, in(), data + (part.begin - range.begin), part.bytes());
      host_->all_to_all(part, in(), received(), host_pieces_.data());
      const auto own = part.piece(rank());
      for (std::size_t r = 0; own.bytes() > 0 && r < host_pieces_.size(); ++r)
        device::copy(device_, staging + r * mine.bytes() + (own.begin - mine.begin), host_pieces_[r], own.bytes());
      host_->release();
    });
  }
  void release() override {}

  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override {
    device::copy(device_, in(), mine, bytes);
    host_->exchange(in(), bytes, received());
    device::copy(device_, all, received(), bytes * index(size()));
  }

  void broadcast(std::byte* data, std::size_t bytes, int root, device::cpu::Team& team) override {
    for (std::size_t at = 0; at < bytes; at += kStaging) {
      const std::size_t part = std::min(kStaging, bytes - at);
      if (root == rank()) device::copy(device_, in(), data + at, part);
      host_->broadcast(in(), part, root, team);
      if (root != rank()) device::copy(device_, data + at, in(), part);
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::byte* in() const { return staging_.data(); }
  std::byte* received() const { return staging_.data() + kStaging; }

  // All ranks cut a range alike.
  template <typename F>
  static void for_parts(const ShardedRange& range, std::size_t most, F&& f) {
    for (std::size_t at = range.begin; at < range.end; at += most)
      f(ShardedRange{range.shard_bytes, at, std::min(range.end, at + most)});
  }

  device::Device device_;
  std::unique_ptr<Collectives> host_;
  device::Arena staging_;
  device::Pin pin_;  // before the staging goes
  std::vector<const std::byte*> host_pieces_;
};

}  // namespace

std::unique_ptr<Collectives> for_lane(World& world, const device::Lane& lane,
                                      std::unique_ptr<Collectives> collectives) {
  if (lane.device().kind == device::Kind::cpu) return collectives;
  STRATA_CHECK_LE(collectives->size(), static_cast<int>(kStaging / kGrain));
  return std::make_unique<StagedCollectives>(lane.device(), std::move(collectives), world.allocate(2 * kStaging));
}

}  // namespace strata::comm
