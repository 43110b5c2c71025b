// training.reduce_group: the bits depend only on the length of a run of micro-batches.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "tests/failure.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

class ReduceGroup : public testing::TestWithParam<const char*> {
 protected:
  ReduceGroup() {
    std::ofstream file(folder_.path() / "tokens.bin", std::ios::binary);
    for (std::uint32_t i = 0; i < 900; ++i) {
      const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 130);
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }

  // Six micro-batches a step.
  Trained train(int ranks, int group, const std::vector<std::string>& more, std::size_t tile_bytes = 0,
                const std::vector<int>& nodes = {}, double* between_nodes = nullptr) const {
    std::vector<std::string> all = {"model.preset=tiny-gpt2",
                                    "model.config.n_layer=2",
                                    "model.config.n_embd=48",
                                    "model.config.n_head=3",
                                    "model.config.vocab_size=130",
                                    "model.config.n_positions=24",
                                    "model.config.resid_pdrop=0.1",
                                    "data.seq_len=16",
                                    "training.max_steps=3",
                                    "training.micro_batch_size=1",
                                    "optimizer.learning_rate=2e-3",
                                    fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()),
                                    fmt::format("training.precision={}", GetParam()),
                                    fmt::format("training.gradient_accumulation_steps={}", 6 / ranks),
                                    fmt::format("training.reduce_group={}", group)};
    all.insert(all.end(), more.begin(), more.end());
    return train_in_threads(
        std::nullopt, all, ranks,
        [&](Trainer&, const Job& job, int rank) {
          if (!between_nodes || rank > 0) return;
          for (const Task& task : job.plan.tasks)
            if (task.kind == TaskKind::reduce && !task.shared) *between_nodes += task.cost.between_bytes;
        },
        tile_bytes, 0, {}, nodes);
  }

  tests::ScratchFolder folder_;
};

// With six micro-batches on up to six ranks, a run of micro-batches lies within a round of the ranks, spans rounds, or
// ends in the middle of one.
TEST_P(ReduceGroup, KeepsItsBits) {
  const std::vector<std::string> away = {"zero.gradients=host", "zero.optimizer=host", "zero.parameters=host"};
  std::set<std::string> hashes;
  for (const int group : {1, 2, 3, 6}) {
    const Trained alone = train(1, group, {});
    const auto compare = [&](int ranks, std::vector<std::string> more, std::size_t tile_bytes = 0) {
      const Trained trained = train(ranks, group, more, tile_bytes);
      const std::string name =
          fmt::format("runs of {}, {} ranks, {}, tiles {}", group, ranks, fmt::join(more, " "), tile_bytes);
      EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << name;
      EXPECT_EQ(trained.loss_hex, alone.loss_hex) << name;
      EXPECT_EQ(trained.weights_hash, alone.weights_hash) << name;
    };
    compare(1, {"memory.order=vertical"});
    compare(1, away);
    for (const int ranks : {2, 3, 6}) {
      for (const int stage : {0, 1, 2, 3})
        for (const char* order : {"horizontal", "vertical"})
          compare(ranks, {fmt::format("zero.stage={}", stage), fmt::format("memory.order={}", order)});
      auto all_away = away;
      all_away.push_back("zero.stage=3");
      compare(ranks, all_away);
      compare(ranks, {"zero.stage=3"}, 1);
    }
    compare(6, {"zero.stage=3", "zero.parameters_group=2"});
    compare(6, {"zero.stage=2", "zero.optimizer_group=3"});
    // If the wire rounds nothing, one run of all micro-batches is the plain sum.
    const bool other = group < 6 || std::string_view(GetParam()) != "fp32";
    EXPECT_EQ(hashes.insert(alone.weights_hash).second, other) << "runs of " << group << " round otherwise";
  }
}

// If one node computes a whole run of micro-batches, it sums them itself. The bits are the same, and one rounded sum
// per node is sent instead of one gradient per rank.
TEST_P(ReduceGroup, IsSummedWithinItsNode) {
  const std::vector<std::string> host = {"zero.stage=2", "zero.gradients=host", "zero.optimizer=host"};
  for (const auto& [group, nodes] :
       {std::pair<int, std::vector<int>>{2, {0, 0, 1, 1, 2, 2}}, {3, {0, 0, 0, 1, 1, 1}}}) {
    const Trained alone = train(1, group, {});
    const auto compare = [&](const std::vector<std::string>& more, std::size_t tile_bytes = 0) {
      double flat = 0, in_nodes = 0;
      (void)train(6, 1, more, tile_bytes, nodes, &flat);
      const Trained trained = train(6, group, more, tile_bytes, nodes, &in_nodes);
      const std::string name = fmt::format("nodes of {}, {}, tiles {}", group, fmt::join(more, " "), tile_bytes);
      EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << name;
      EXPECT_EQ(trained.loss_hex, alone.loss_hex) << name;
      EXPECT_EQ(trained.weights_hash, alone.weights_hash) << name;
      if (tile_bytes == 0) {
        EXPECT_EQ(flat, group * in_nodes) << name;
      }
    };
    for (const int stage : {0, 1, 2, 3}) compare({fmt::format("zero.stage={}", stage)});
    compare({"zero.stage=3", "memory.order=vertical"});
    compare({"zero.stage=3"}, 1);
    compare(host);
    compare({"zero.stage=3", "zero.parameters_group=node"});
    compare({"zero.stage=2", "zero.gradients_group=node"});
  }
}
INSTANTIATE_TEST_SUITE_P(Precisions, ReduceGroup, testing::Values("fp32", "bf16", "fp16"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(ReduceGroupTest, ARunEndsWithTheStep) {
  const std::vector<std::string> sets = {"model.preset=tiny-gpt2", "training.gradient_accumulation_steps=3",
                                         "training.reduce_group=4"};
  const Workload workload = open_workload(load_recipe(std::nullopt, sets));
  EXPECT_FAILURE((void)make_job(workload, 2, {}), Exit::usage,
                 testing::AllOf(testing::HasSubstr("does not divide the 6 micro-batches"),
                                testing::HasSubstr("2 ranks with 3 each"), testing::HasSubstr("set 3 or 6")));
  EXPECT_EQ(make_job(workload, 4, {}).plan.reduce_group, 4);
}

}  // namespace
}  // namespace strata::runtime
