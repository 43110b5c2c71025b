// The numerics contract over pipeline stages: the bits do not depend on parallel.stages, .split and .schedule, with
// every ZeRO stage and tier. Every run here also has to allocate and send exactly what was planned.
#include "tests/runtime/run/contract.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

class StagesContract : public ContractCase {
 protected:
  Trained run(int ranks, int stages, const std::vector<std::string>& more = {}, std::size_t tile_bytes = 0) const {
    auto all = sets(1);
    all.back() = fmt::format("training.gradient_accumulation_steps={}", 4 * stages / ranks);
    all.push_back(fmt::format("parallel.stages={}", stages));
    all.insert(all.end(), more.begin(), more.end());
    return train_in_threads(std::nullopt, all, ranks, {}, tile_bytes);
  }
};

TEST_P(StagesContract, SameBitsInStages) {
  const Trained alone = run(1, 1);
  const std::string nvme = fmt::format("memory.nvme={}", folder_.path().string());
  const struct {
    int ranks, stages;
    std::vector<std::string> sets;
    std::size_t tile_bytes = 0;
  } cases[] = {
      {2, 2, {}},
      {3, 3, {"memory.prefetch=0"}},
      {5, 5, {}},
      {2, 2, {"parallel.schedule=all_forward_all_backward"}},
      {2, 2, {"parallel.split=[0, 3]", "training.recompute=block"}},
      {2, 2, {"parallel.split=[3, 0]", "training.recompute=sqrt"}},
      {3, 3, {"parallel.split=[1, 2, 0]", "training.recompute=[1]"}},
      {4, 2, {"zero.stage=1"}},
      {4, 2, {"zero.stage=2", "zero.parameters=host"}},
      {4, 2, {"zero.stage=3"}},
      {8, 2, {"zero.stage=3", "zero.parameters_group=2", "training.recompute=block"}},
      {4, 2, {"zero.stage=3", "training.recompute=block", "zero.activations=host", "zero.parameters=host"}},
      {4, 2, {"zero.stage=3", "zero.gradients=host", "zero.optimizer=nvme", "zero.parameters=nvme", nvme}},
      {2, 2, {"zero.gradients=host", "zero.stage=2"}},
      {2, 2, {"zero.optimizer=host"}},
      {8, 2, {"zero.stage=1"}},
      {8, 2, {"zero.stage=3", "zero.optimizer=host", "zero.gradients=host", "zero.parameters=host"}},
      {4, 4, {"zero.stage=3", "zero.parameters=nvme", nvme}},
      {6, 3, {"zero.stage=2", "zero.optimizer=host"}},
      {2, 2, {"parallel.schedule=interleaved", "parallel.chunks=2"}},
      {4, 2, {"parallel.schedule=interleaved", "parallel.chunks=2", "zero.stage=3", "training.recompute=sqrt"}},
      {2,
       2,
       {"parallel.schedule=interleaved", "parallel.chunks=2", "parallel.split=[0, 1, 1, 1]", "zero.optimizer=host",
        "zero.gradients=host"}},
      {4,
       2,
       {"parallel.schedule=interleaved", "parallel.chunks=2", "zero.stage=2", "zero.parameters=host",
        "training.recompute=block", "zero.activations=host"}},
      {4, 2, {"zero.stage=3"}, 1},
      {2, 2, {"zero.stage=3", "zero.parameters=host", "zero.gradients=host", "zero.optimizer=host"}, 1},
      {8, 4, {"zero.stage=3", "zero.parameters=host", "training.recompute=block"}, 1},
  };
  for (const auto& c : cases) {
    if (4 * c.stages % c.ranks != 0) continue;
    const std::string name =
        fmt::format("{} ranks, {} stages, {}, tiles {}", c.ranks, c.stages, fmt::join(c.sets, ", "), c.tile_bytes);
    const Trained trained = run(c.ranks, c.stages, c.sets, c.tile_bytes);
    EXPECT_TRUE(trained.memory_as_planned && trained.bytes_as_planned) << name;
    EXPECT_EQ(trained.loss_hex, alone.loss_hex) << name;
    EXPECT_EQ(trained.weights_hash, alone.weights_hash) << name;
  }
}

// Sums whose order the recipe changes are the same in stages too.
TEST_P(StagesContract, SameSumsInStages) {
  for (const std::string set : {"training.reduce=fast", "training.reduce_group=2"})
    EXPECT_EQ(run(4, 2, {set, "zero.stage=2"}).weights_hash, run(2, 1, {set, "zero.stage=2"}).weights_hash) << set;
}

// A stage may train nothing; then no gradient comes back to it.
TEST_P(StagesContract, SameBitsIfAStageIsFrozen) {
  const std::string frozen = std::get<0>(GetParam()) == 0 ? R"(training.freeze=["*wte*", "*wpe*", "*h.0.*"])"
                                                          : R"(training.freeze=["*embed*", "*layers.0.*"])";
  const Trained alone = run(1, 1, {frozen});
  for (const int stages : {2, 3}) EXPECT_EQ(run(stages, stages, {frozen}).weights_hash, alone.weights_hash) << stages;
  EXPECT_EQ(run(4, 2, {frozen, "zero.stage=3"}).weights_hash, alone.weights_hash);
  EXPECT_EQ(run(2, 2, {frozen, "parallel.schedule=interleaved", "parallel.chunks=2"}).weights_hash, alone.weights_hash);
}

INSTANTIATE_TEST_SUITE_P(Models, StagesContract, kContractCases, contract_name);

// Each stage reads its own units of a model folder.
TEST(StagesOfAFolder, SameBits) {
  const auto train = [](int ranks, int stages) {
    return train_in_threads(tests::source_dir() / "tests/golden/llama/recipe.toml",
                            {fmt::format("training.gradient_accumulation_steps={}", 4 * stages / ranks),
                             fmt::format("parallel.stages={}", stages)},
                            ranks);
  };
  const std::string hash = train(1, 1).weights_hash;
  EXPECT_EQ(train(2, 2).weights_hash, hash);
  EXPECT_EQ(train(4, 2).weights_hash, hash);
}

// A checkpoint of any number of stages can be resumed with any other number.
TEST(StagesResume, SameBitsOverStages) {
  const SavedRun run;
  struct Ranks {
    int all, stages, chunks;
  };
  const auto sets = [&](const Ranks& r, const std::string& more) {
    return run.sets(r.all / r.stages,
                    {fmt::format("parallel.stages={}", r.stages), fmt::format("parallel.chunks={}", r.chunks),
                     fmt::format("parallel.schedule={}", r.chunks > 1 ? "interleaved" : "1f1b"), more});
  };
  const auto whole = run.run(1, sets({1, 1, 1}, "checkpoint.resume=none"), 6);
  const Ranks meshes[] = {{2, 2, 1}, {1, 1, 1}, {2, 2, 2}, {4, 2, 1}, {4, 4, 1}, {4, 2, 2}, {2, 1, 1}, {8, 4, 1}};
  for (std::size_t i = 0; i < std::size(meshes); ++i) {
    const Ranks &mesh = meshes[i], &next = meshes[(i + 1) % std::size(meshes)];
    SCOPED_TRACE(fmt::format("{} ranks in {} stages of {} -> {} in {} of {}", mesh.all, mesh.stages, mesh.chunks,
                             next.all, next.stages, next.chunks));
    run.run(mesh.all, sets(mesh, "checkpoint.resume=none"), 3, {3});
    const auto rest = run.run(next.all, sets(next, "zero.stage=2"), 6);
    EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 3, whole.losses.end()));
    EXPECT_EQ(rest.weights, whole.weights);
    EXPECT_EQ(rest.progress, whole.progress);
  }
}

}  // namespace
}  // namespace strata::runtime
