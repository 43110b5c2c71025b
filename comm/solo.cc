#include "base/error.h"
#include "comm/communicator.h"
#include "device/ops/elementwise.h"

namespace strata::comm {
namespace {

// Bytes as elements of the smallest dtype; the size of every range is a multiple of it.
device::ConstView bytes_of(const std::byte* data, std::size_t bytes) {
  return {data, bytes / 2, device::DType::bf16};
}

class SoloCommunicator final : public Communicator {
 public:
  explicit SoloCommunicator(device::Lane& lane) : lane_(lane) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  device::Lane& lane() const override { return lane_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) override {
    copy(out, shard + range.begin, range.bytes());
  }
  void all_to_all(const ShardedRange&, const std::byte* in, std::byte*, const std::byte** pieces) override {
    pieces[0] = in;
  }
  void release() override {}
  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override { copy(all, mine, bytes); }
  void broadcast(std::byte*, std::size_t, int) override {}
  void send(const std::byte*, std::size_t, int to) override { STRATA_CHECK(is_peer(to)); }
  void receive(std::byte*, std::size_t, int from) override { STRATA_CHECK(is_peer(from)); }
  bool can_be_recorded() const override { return true; }
  CommBytes sent() const override { return {}; }

 private:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    STRATA_CHECK_EQ(bytes % 2, 0u);
    if (to == from || bytes == 0) return;
    cast(lane_, bytes_of(from, bytes), {to, bytes / 2, device::DType::bf16});
  }

  device::Lane& lane_;
};

class SoloWorld final : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int node_size() const override { return 1; }
  int node_rank() const override { return 0; }
  std::string describe() const override { return "one rank without mpirun"; }
  AbortToken& abort_token() override { return token_; }

  device::Arena allocate_host(std::size_t bytes) override { return device::Arena(bytes); }
  std::unique_ptr<Communicator> open(device::Lane& lane, const Group&) override {
    return std::make_unique<SoloCommunicator>(lane);
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    token_.throw_if_set();
    return {mine};
  }
  void report_failure(const std::string& cause, Exit code) override { token_.set({0, cause, code}); }

 private:
  AbortToken token_;
};

}  // namespace

std::unique_ptr<World> solo_world() {
  return std::make_unique<SoloWorld>();
}

}  // namespace strata::comm
