#include "runtime/execute/chunk_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/execute/lanes.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kBytes = 24;

// A plan with chunks for which the host has memory of its own, as with a GPU, or the one that collectives reach.
StepPlan plan_with_chunks(const Job& job, int ranks, bool apart) {
  StepPlan plan = job.plan;
  const auto add = [&](Tier tier) {
    std::size_t& peak = plan.memory[static_cast<std::size_t>(tier)].peak;
    const std::size_t bytes = std::size_t{1} << 12;
    peak = (peak + bytes - 1) / bytes * bytes;
    plan.buffers.push_back({"chunks", Kind::staging, tier, bytes, true, true, peak});
    peak += bytes;
    return static_cast<int>(plan.buffers.size()) - 1;
  };
  plan.chunks = {kBytes, add(Tier::device), -1};
  plan.chunks.host_buffer = apart ? add(Tier::host) : plan.chunks.buffer;
  EXPECT_LE(static_cast<std::size_t>(ranks) * kBytes, plan.buffers.back().bytes);
  return plan;
}

TEST(ChunkGather, EveryRankHasAllInTheirOrder) {
  for (const int ranks : {1, 2, 3})
    for (const bool apart : {false, true}) {
      const Job job = tiny_job({"training.global_batch_size=6", "zero.optimizer=host"}, ranks);
      const StepPlan plan = plan_with_chunks(job, ranks, apart);
      comm::run_threads(ranks, [&](comm::World& world) {
        Storage storage(plan, world, {});
        const Queues queues(plan, world, 1);
        ChunkGather chunks(plan, storage, *queues.gather);
        for (const char first : {'a', 'k'}) {  // again: nothing of the first time is left
          const auto text = [&](int rank) { return std::string(kBytes, static_cast<char>(first + rank)); };
          const std::span<std::byte> own = chunks.own();
          ASSERT_EQ(own.size(), kBytes);
          std::memcpy(own.data(), text(world.rank()).data(), kBytes);
          const std::span<const std::byte> all = chunks.all();
          std::string expected;
          for (int rank = 0; rank < ranks; ++rank) expected += text(rank);
          EXPECT_EQ(std::string(reinterpret_cast<const char*>(all.data()), all.size()), expected)
              << ranks << " ranks, " << (apart ? "apart" : "one buffer");
        }
      });
    }
}

}  // namespace
}  // namespace strata::runtime
