#include <cstring>

#include "comm/communicator.h"
#include "comm/lane_communicator.h"

namespace strata::comm {
namespace {

class SoloCollectives final : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out, device::cpu::Team& team) override {
    copy(out, shard + range.begin, range.bytes(), team);
  }
  void all_to_all(const ShardedRange&, const std::byte* in, std::byte*, const std::byte** pieces) override {
    pieces[0] = in;
  }
  void release() override {}
  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override { std::memmove(all, mine, bytes); }
  void broadcast(std::byte*, std::size_t, int, device::cpu::Team&) override {}
};

class SoloWorld final : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int node_size() const override { return 1; }
  int node_rank() const override { return 0; }
  std::string describe() const override { return "solo"; }
  device::AbortToken& abort_token() override { return token_; }

  device::Arena allocate(std::size_t bytes) override { return device::Arena(bytes); }
  std::unique_ptr<Communicator> open(device::Lane& lane) override {
    return queue_in_lane(lane, std::make_unique<SoloCollectives>());
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    token_.throw_if_set();
    return {mine};
  }
  void report_failure(const std::string& cause, Exit code) override { token_.set({0, cause, code}); }

 private:
  device::AbortToken token_;
};

}  // namespace

std::unique_ptr<World> solo_world() {
  return std::make_unique<SoloWorld>();
}

}  // namespace strata::comm
