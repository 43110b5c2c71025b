// The numerics contract over groups of ranks: the bits do not depend on zero.*_group, on nodes of several ranks. Every
// run here also has to allocate and send exactly what was planned, within nodes and between them.
#include <algorithm>

#include "tests/runtime/run/contract.h"
#include "tests/runtime/training.h"

namespace strata::runtime {
namespace {

class GroupsContract : public ContractCase {};

// Groups of 1, 2 and 4 of 8 ranks hold parameters, sums of gradients or all state in copies: on the device, in tiles,
// and in other tiers, on nodes of half of the ranks each.
TEST_P(GroupsContract, SameBitsInGroupsOfRanks) {
  const auto run = [&](int ranks, const std::vector<std::string>& more, std::size_t tile_bytes) {
    auto all = sets(1);
    all.back() = fmt::format("training.gradient_accumulation_steps={}", 8 / ranks);
    all.insert(all.end(), more.begin(), more.end());
    std::vector<int> nodes;
    for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / std::max(1, ranks / 2));
    return train_in_threads(std::nullopt, all, ranks, {}, tile_bytes, 0, {}, nodes);
  };
  const Trained alone = run(1, {}, 0);
  const std::string nvme = fmt::format("memory.nvme={}", folder_.path().string());
  const struct {
    int ranks;
    std::vector<std::string> sets;
    std::size_t tile_bytes = 0;
  } cases[] = {{8, {"zero.stage=3", "zero.parameters_group=1"}},
               {8, {"zero.stage=3", "zero.parameters_group=2", "memory.prefetch=0"}},
               {8, {"zero.stage=3", "zero.parameters_group=4", "training.recompute=block"}},
               {8, {"zero.stage=3", "zero.optimizer_group=1"}},
               {8, {"zero.stage=3", "zero.optimizer_group=2"}},
               {8, {"zero.stage=3", "zero.optimizer_group=4", "zero.parameters_group=2", "memory.order=vertical"}},
               {8, {"zero.stage=2", "zero.optimizer_group=2", "zero.gradients_group=2"}},
               {8, {"zero.stage=1", "zero.optimizer_group=4"}},
               {8, {"zero.stage=3", "zero.parameters_group=node"}},
               {8, {"zero.stage=3", "zero.optimizer_group=node", "zero.parameters_group=2"}},
               {8, {"zero.stage=2", "zero.gradients_group=1"}},
               {8, {"zero.stage=3", "zero.gradients_group=2"}},
               {8, {"zero.stage=3", "zero.parameters_group=1", "zero.gradients_group=2", "zero.optimizer_group=4"}},
               {8, {"zero.stage=3", "zero.parameters_group=2", "zero.gradients_group=4", "memory.prefetch=1"}},
               {4, {"zero.stage=2", "zero.gradients_group=2", "zero.optimizer=host"}},
               {4, {"zero.stage=3", "zero.gradients_group=2", "zero.gradients=host", "zero.parameters=host"}, 1},
               {4, {"zero.stage=3", "zero.gradients_group=1", "zero.gradients=nvme", "zero.optimizer=nvme", nvme}},
               {4, {"zero.stage=3", "zero.gradients_group=2", "zero.gradients=host", "memory.order=vertical"}},
               {4, {"zero.stage=3", "zero.parameters_group=2"}, 1},
               {4, {"zero.stage=3", "zero.optimizer_group=2"}, 1},
               {4, {"zero.stage=3", "zero.parameters_group=2", "zero.optimizer=host"}},
               {4, {"zero.stage=3", "zero.parameters_group=2", "zero.parameters=host", "zero.gradients=host"}},
               {4, {"zero.stage=3", "zero.parameters_group=2", "zero.parameters=nvme", "zero.optimizer=nvme", nvme}},
               {4, {"zero.stage=3", "zero.parameters_group=2", "zero.parameters=host", "zero.optimizer=host"}, 1},
               {4, {"zero.stage=3", "zero.optimizer_group=2", "zero.gradients=host", "zero.optimizer=nvme", nvme}},
               {4, {"zero.stage=2", "zero.optimizer_group=2", "zero.parameters=host"}}};
  for (const auto& c : cases) {
    const std::string name = fmt::format("{} ranks, {}, tiles {}", c.ranks, fmt::join(c.sets, ", "), c.tile_bytes);
    const Trained trained = run(c.ranks, c.sets, c.tile_bytes);
    EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << name;
    EXPECT_EQ(trained.loss_hex, alone.loss_hex) << name;
    EXPECT_EQ(trained.weights_hash, alone.weights_hash) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GroupsContract, kContractCases, contract_name);

}  // namespace
}  // namespace strata::runtime
