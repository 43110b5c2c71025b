// Tests the real NCCL on a real GPU with one rank, so only its calls and results, and no exchange between ranks.
// Skipped, with the reason, if there is no GPU or no NCCL.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "device/gpu.h"
#include "device/memory.h"
#include "tests/comm/nccl/ranks.h"

namespace strata::comm {
namespace {

constexpr int kSkipped = 77;
constexpr std::size_t kBytes = 1 << 20;

std::vector<std::byte> numbered(std::size_t bytes, int seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return out;
}

TEST(NcclOnAGpu, MovesBytesRegistersBuffersAndLeaves) {
  run_ranks(1, std::chrono::seconds(60), [](Rank& rank) {
    device::Arena arena(3 * kBytes, rank.device);
    device::Lane gather_lane = rank.lane("gather"), reduce_lane = rank.lane("reduce");
    const auto gather = rank.open(gather_lane), reduce = rank.open(reduce_lane);
    EXPECT_TRUE(static_cast<NcclCommunicator&>(*gather).register_buffers({arena.data(), arena.size()}));
    const auto sent = numbered(kBytes, 1);
    arena.write(0, sent);
    std::vector<std::byte> got(kBytes);
    const auto expect_at = [&](std::size_t offset, const char* what) {
      gather_lane.synchronize();
      reduce_lane.synchronize();
      arena.read(offset, got);
      EXPECT_EQ(got, sent) << what;
      arena.write(kBytes, std::vector<std::byte>(2 * kBytes));
    };
    const ShardedRange range{kBytes, 0, kBytes};
    gather->all_gather(range, arena.data(), arena.at(kBytes));
    expect_at(kBytes, "all-gather");
    std::vector<const std::byte*> pieces(1);
    reduce->all_to_all(range, arena.data(), arena.at(2 * kBytes), pieces.data());
    reduce->release();
    expect_at(2 * kBytes, "all-to-all");
    gather->exchange(arena.data(), 64, arena.at(kBytes));
    gather->broadcast(arena.data(), kBytes, 0);
    expect_at(0, "broadcast");
    for (int i = 0; i < 100; ++i) gather->all_gather(range, arena.data(), arena.at(kBytes));
    expect_at(kBytes, "the last of many");
    static_cast<NcclCommunicator&>(*gather).deregister_buffers();
  });
}

TEST(NcclOnAGpu, CommunicatorsAreAbortedTogether) {
  AbortToken* token = nullptr;
  try {
    run_ranks(1, std::chrono::seconds(60), [&](Rank& rank) {
      token = &rank.world.abort_token();
      const device::Arena arena(2 * kBytes, rank.device);
      device::Lane gather_lane = rank.lane("gather"), reduce_lane = rank.lane("reduce");
      const auto gather = rank.open(gather_lane), reduce = rank.open(reduce_lane);
      gather->all_gather({kBytes, 0, kBytes}, arena.data(), arena.at(kBytes));
      token->set({0, "told to stop", Exit::failed});
      gather_lane.synchronize();
    });
    FAIL() << "the run continued";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("told to stop"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace strata::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const strata::device::Gpus found = strata::device::find_gpus();
  std::string missing = found.problem;
  if (missing.empty() && !found.usable()) missing = "no GPU here can be used";
  try {
    if (missing.empty()) std::printf("NCCL %s\n", strata::comm::nccl_version().c_str());
  } catch (const strata::Error& error) {
    missing = error.what();
  }
  if (missing.empty()) return RUN_ALL_TESTS();
  std::printf("Skipped: %s\n", missing.c_str());
  return strata::comm::kSkipped;
}
