// Whole runs on a GPU: an emulated one if this program is linked with the emulation (tests/device/emulation), otherwise
// a real one, if run_test finds one. They check the numerics contract, and that the curve is near the CPU's.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "device/backend.h"
#include "device/gpu.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

#ifdef STRATA_EMULATED_GPU
constexpr bool kEmulated = true;
#else
constexpr bool kEmulated = false;
#endif

struct GpuRunVariant {
  int ranks;
  std::vector<std::string> sets;
};

class GpuRun : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!kEmulated && !device::find_gpus().usable()) GTEST_SKIP() << "no GPU here can be used";
    std::vector<std::uint16_t> tokens;
    for (int i = 0; i < 2000; ++i) tokens.push_back(static_cast<std::uint16_t>((i * 7 + i * i / 5) % 96));
    std::ofstream(folder_.path() / "tokens.bin", std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * 2));
  }

  Trained train(const char* kind, int ranks, const std::string& precision, std::vector<std::string> more,
                const std::function<void(Trainer&)>& before_step = {}) const {
    const bool llama = std::string(GetParam()) == "llama";
    std::vector<std::string> sets =
        llama ? std::vector<std::string>{"model.preset=tiny-llama",
                                         "model.config.num_hidden_layers=2",
                                         "model.config.hidden_size=32",
                                         "model.config.num_attention_heads=4",
                                         "model.config.num_key_value_heads=2",
                                         "model.config.head_dim=8",
                                         "model.config.intermediate_size=48",
                                         "model.config.vocab_size=96"}
              : std::vector<std::string>{
                    "model.preset=tiny-gpt2",      "model.config.n_layer=2",       "model.config.n_embd=32",
                    "model.config.n_head=4",       "model.config.vocab_size=96",   "model.config.n_positions=16",
                    "model.config.attn_pdrop=0.1", "model.config.resid_pdrop=0.1", "model.config.embd_pdrop=0.1"};
    for (const std::string& set : std::vector<std::string>{
             fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()), "data.seq_len=16",
             "training.micro_batch_size=1", fmt::format("training.gradient_accumulation_steps={}", 2 / ranks),
             "training.max_steps=2", "training.precision=" + precision, "optimizer.learning_rate=1e-2",
             "scheduler.warmup_steps=0", "memory.device=1GiB", "memory.host=1GiB",
             "memory.nvme=" + folder_.path().string(), fmt::format("device.kind={}", kind)})
      sets.push_back(set);
    sets.insert(sets.end(), more.begin(), more.end());
    return train_in_threads(std::nullopt, sets, ranks, {}, 0, 0, before_step);
  }

  tests::ScratchFolder folder_;
};

TEST_P(GpuRun, HasTheSameBitsInEveryPlan) {
  const std::vector<GpuRunVariant> variants = {
      {1, {"training.recompute=block", "memory.order=vertical"}},
      {1, {"zero.optimizer=host", "zero.parameters=host", "zero.gradients=host"}},
      {1, {"zero.optimizer=nvme", "zero.parameters=nvme", "memory.order=vertical"}},
      {2, {"zero.stage=0"}},
      {2, {"zero.stage=1", "training.recompute=sqrt"}},
      {2, {"zero.stage=2", "zero.optimizer=host"}},
      {2, {"zero.stage=3", "memory.prefetch=0"}},
      {2, {"zero.stage=3", "zero.optimizer=nvme", "zero.parameters=nvme", "training.recompute=block"}},
  };
  for (const char* precision : {"bf16", "fp16"}) {
    const Trained plain = train("cuda", 1, precision, {});
    EXPECT_TRUE(plain.memory_as_planned);
    for (const GpuRunVariant& v : variants) {
      const Trained other = train("cuda", v.ranks, precision, v.sets);
      EXPECT_EQ(other.loss_hex, plain.loss_hex) << precision << ", " << v.ranks << " ranks, " << v.sets[0];
      EXPECT_EQ(other.weights_hash, plain.weights_hash) << precision << ", " << v.ranks << " ranks, " << v.sets[0];
      EXPECT_TRUE(other.memory_as_planned && other.bytes_as_planned) << v.sets[0];
    }
  }
}

// Backward ends within the first block: below its last product, or at the product of queries, keys and values; or in
// the head.
TEST_P(GpuRun, AdaptersHaveTheSameBitsInEveryPlan) {
  const bool llama = std::string(GetParam()) == "llama";
  for (const std::string& target : {std::string(llama ? "down_proj" : "mlp.c_proj"),
                                    std::string(llama ? "q_proj" : "c_attn"), std::string("lm_head")}) {
    std::vector<std::string> sets = {"adapter.kind=lora", "adapter.rank=2",
                                     fmt::format("adapter.target_modules=[\"{}\"]", target), "adapter.dora=true"};
    if (target == "lm_head") {
      sets.emplace_back("model.config.tie_word_embeddings=false");
      sets.emplace_back(llama ? "adapter.dropout=0.25" : "adapter.dropout=0");
    }
    const Trained plain = train("cuda", 1, "bf16", sets);
    EXPECT_TRUE(plain.memory_as_planned) << target;
    for (const char* set : {"zero.stage=3", "zero.parameters=host", "training.recompute=block"}) sets.emplace_back(set);
    const Trained other = train("cuda", 2, "bf16", sets);
    EXPECT_EQ(other.loss_hex, plain.loss_hex) << target;
    EXPECT_EQ(other.weights_hash, plain.weights_hash) << target;
    EXPECT_TRUE(other.memory_as_planned && other.bytes_as_planned) << target;
  }
}

TEST_P(GpuRun, StepsLaunchedAsAGraphHaveTheSameBits) {
  const std::vector<std::vector<std::string>> variants = {
      {"training.recompute=none"},
      {"zero.parameters=host", "training.recompute=block", "memory.order=vertical"},
  };
  for (std::vector<std::string> sets : variants) {
    sets.emplace_back("training.max_steps=3");
    const Trained graph = train("cuda", 1, "bf16", sets);
    const Trained tasks = train("cuda", 1, "bf16", sets, [](Trainer& trainer) { trainer.executor().time_next_step(); });
    EXPECT_EQ(graph.graph_steps, 2) << sets[0] << graph.graph_refusal;  // the first is issued task by task
    EXPECT_EQ(tasks.graph_steps, 0);
    EXPECT_EQ(graph.loss_hex, tasks.loss_hex) << sets[0];
    EXPECT_EQ(graph.weights_hash, tasks.weights_hash) << sets[0];
    EXPECT_TRUE(graph.memory_as_planned && graph.bytes_as_planned) << sets[0];
  }
}

// The loss scale is far too high at first and doubles with every update. If one rank's plan is not cyclic, steps are
// graphs.
TEST_P(GpuRun, SkippedStepsHaveTheSameBitsInEveryTier) {
  const std::vector<std::string> skips = {"training.max_steps=8", "fp16.initial_scale=2097152",
                                          "fp16.growth_interval=1"};
  const std::vector<GpuRunVariant> variants = {
      {1, {"zero.parameters=host"}},
      {1, {"zero.parameters=nvme", "zero.gradients=host"}},
      {1, {"zero.optimizer=host", "zero.parameters=host"}},
      {2, {"zero.stage=1", "zero.parameters=host"}},
      {2, {"zero.stage=3", "zero.parameters=nvme"}},
  };
  const Trained plain = train("cuda", 1, "fp16", skips);
  const auto skipped = [](const StepReport& step) { return step.skipped; };
  const auto first_update = std::find_if_not(plain.steps.begin(), plain.steps.end(), skipped);
  EXPECT_TRUE(plain.steps[0].skipped);
  EXPECT_GT(std::count_if(first_update, plain.steps.end(), skipped), 0) << "between updates";
  for (GpuRunVariant v : variants) {
    const std::string name = fmt::format("{} ranks, {}", v.ranks, fmt::join(v.sets, ", "));
    v.sets.insert(v.sets.end(), skips.begin(), skips.end());
    const Trained other = train("cuda", v.ranks, "fp16", v.sets);
    EXPECT_EQ(other.loss_hex, plain.loss_hex) << name;
    EXPECT_EQ(other.weights_hash, plain.weights_hash) << name;
  }
}

TEST_P(GpuRun, HostWorkPreventsGraphs) {
  EXPECT_EQ(train("cuda", 1, "bf16", {"zero.optimizer=host"}).graph_steps, 0);
  EXPECT_EQ(train("cuda", 2, "bf16", {"comm.backend=auto"}).graph_steps, 0);
}

// Only the order of sums differs: some units of 2^-24 in fp32, and of 2^-8 if bf16 rounds the sums. Over 50 steps, the
// emulated curves differ by 4e-8 and 2e-4 of a loss, and by 8e-7 and 3e-3 of a norm; an H200's by 1.6e-2 of a norm in
// bf16.
TEST_P(GpuRun, FollowsTheCpusCurve) {
  struct Bound {
    const char* precision;
    double loss, norm;
  };
  for (const Bound& bound : {Bound{"fp32", 1e-6, 1e-5}, Bound{"bf16", 1e-3, 3e-2}}) {
    const std::vector<std::string> more = {"training.max_steps=50", "optimizer.learning_rate=3e-3"};
    const Trained gpu = train("cuda", 1, bound.precision, more), cpu = train("cpu", 1, bound.precision, more);
    ASSERT_EQ(gpu.steps.size(), 50u);
    ASSERT_EQ(cpu.steps.size(), 50u);
    for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
      EXPECT_NEAR(gpu.steps[i].loss, cpu.steps[i].loss, bound.loss * cpu.steps[i].loss) << bound.precision << i;
      EXPECT_NEAR(gpu.steps[i].grad_norm, cpu.steps[i].grad_norm, bound.norm * cpu.steps[i].grad_norm)
          << bound.precision << i;
    }
    EXPECT_LT(cpu.steps[49].loss, 0.97 * cpu.steps[0].loss) << "must learn something, or the comparison shows little";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GpuRun, testing::Values("gpt2", "llama"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace strata::runtime
