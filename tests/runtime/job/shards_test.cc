#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/job/requirements.h"
#include "tests/failure.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr, testing::Not;

void expect_refused(std::vector<std::string> sets, const std::string& why) {
  EXPECT_FAILURE(tiny_job(std::move(sets), 1), Exit::usage, HasSubstr(why));
}

TEST(Shards, RefuseUnsupportedSettings) {
  expect_refused(
      {"parallel.tensor_shards=8"},
      "parallel.tensor_shards = 8 cannot divide this model's blocks: it must divide their 4 heads and MLP of 512; use "
      "at most 4");
  expect_refused({"model.preset=tiny-llama", "parallel.tensor_shards=8"}, "use at most 4");
  expect_refused({"model.preset=tiny-llama", "model.config.num_attention_heads=12",
                  "model.config.num_key_value_heads=3", "model.config.hidden_size=96", "parallel.tensor_shards=4"},
                 "must divide their 12 heads and MLP of 352, and divide their 3 key-value heads or be a multiple of "
                 "them; leave it out");
  expect_refused({"parallel.tensor_shards=4", "model.frozen_format=nf4", "training.freeze=*.h.*"}, "use at most 2");
  expect_refused({"parallel.tensor_shards=4", "model.frozen_format=nf4", "adapter.kind=lora"},
                 "parallel.tensor_shards = 4 cuts transformer.h.0.attn.c_attn.weight every 32 elements, but in 4 bits "
                 "64 consecutive elements share a scale: use at most 2");
  expect_refused({"model.preset=bert-base", "parallel.tensor_shards=8"},
                 "must divide their 12 heads and MLP of 3072; use at most 4");
}

TEST(Shards, RanksThatCannotShareTheModelAreRefused) {
  const auto refused = [](std::vector<std::string> sets, int ranks, const std::string& why) {
    EXPECT_FAILURE(tiny_job(std::move(sets), ranks), Exit::usage, HasSubstr(why));
  };
  refused({"parallel.tensor=3"}, 3, "parallel.tensor = 3 is not a power of two");
  refused({"parallel.tensor=3"}, 3, "use 2 or 4");
  Recipe large;  // a search may try what no recipe may name
  large.parallel.tensor = 128;
  EXPECT_FAILURE(require_mesh(large, 128, 128), Exit::usage,
                 HasSubstr("is too large, because at most 64 ranks can share a layer: set parallel.stages"));
  refused({"parallel.tensor=4", "parallel.tensor_shards=2"}, 4,
          "parallel.tensor = 4 does not divide parallel.tensor_shards = 2, which is part of the numerics: use at most "
          "2 ranks per block");
  refused({"parallel.tensor=2"}, 3,
          "3 ranks cannot be divided into parallel.tensor = 2: use a multiple of 2 (mpirun -n 2, "
          "launch --ranks-per-node 2, or --ranks 2 for a plan)");
  refused({"parallel.tensor=2", "zero.stage=3", "zero.optimizer_group=4"}, 4,
          "zero.optimizer_group = 4 does not divide the run's 2 data ranks: give 1 or \"all\"");
  refused({"parallel.tensor=2", "parallel.stages=2"}, 6,
          "6 ranks cannot be divided into parallel.tensor = 2 times parallel.stages = 2: use a multiple of 4 (mpirun "
          "-n 4, launch --ranks-per-node 4, or --ranks 4 for a plan)");
  const std::vector<std::string> grouped = {"parallel.tensor=2", "parallel.stages=2", "zero.stage=3"};
  const auto in_groups = [&](const std::string& group) {
    auto sets = grouped;
    sets.push_back(group);
    return sets;
  };
  refused(in_groups("zero.optimizer_group=2"), 1,
          "1 rank cannot be divided into parallel.tensor = 2 times parallel.stages = 2: use a multiple of 8 because of "
          "zero.optimizer_group = 2 (mpirun -n 8, launch --ranks-per-node 8, or --ranks 8 for a plan)");
  refused(in_groups("zero.parameters_group=2"), 6, "use a multiple of 8 because of zero.parameters_group = 2");
  refused(in_groups("zero.optimizer_group=node"), 6, "use a multiple of 4 (mpirun");
  refused({"parallel.tensor=2", "zero.stage=2", "zero.parameters_group=2"}, 3, "use a multiple of 2 (mpirun");
  refused(
      {"parallel.split=[1, 1]"}, 2,
      "parallel.split = [1, 1] says how many blocks each stage has, but parallel.stages is 1: set parallel.stages = 2");
  refused(
      {"parallel.split=[4]"}, 1,
      "parallel.split = [4] says how many blocks each stage has, but parallel.stages is 1: leave parallel.split out");
  refused({"parallel.split=[1, 1, 1, 1]", "parallel.schedule=interleaved", "parallel.chunks=2"}, 2,
          "but parallel.stages is 1: set parallel.stages = 2, or leave parallel.split out");
  // The message names the key that was set, because by default there are as many shards as ranks.
  refused({"parallel.tensor=8"}, 8, "parallel.tensor = 8 cannot divide this model's blocks");
  refused({"parallel.tensor=4", "parallel.tensor_shards=8"}, 4, "parallel.tensor_shards = 8 cannot divide");
  refused({"parallel.tensor=8", "parallel.tensor_shards=16"}, 8, "use at most 4, and as many ranks in parallel.tensor");
  // The heads are those of Phi-4, with four query heads per key-value head. In four shards, a key-value head would lie
  // in two of them.
  refused({"model.preset=tiny-llama", "model.config.hidden_size=320", "model.config.num_attention_heads=40",
           "model.config.num_key_value_heads=10", "parallel.tensor=4"},
          4,
          "parallel.tensor = 4 cannot divide this model's blocks: it must divide their 40 heads and MLP of 352, and "
          "divide their 10 key-value heads or be a multiple of them; use at most 2");
  refused({"parallel.tensor=4", "model.frozen_format=nf4", "adapter.kind=lora"}, 4, "parallel.tensor = 4 cuts");
}

TEST(Shards, RowsThatRanksCannotDivideAreRefused) {
  const auto refused = [](std::vector<std::string> sets, const std::string& why) {
    EXPECT_FAILURE(tiny_job(std::move(sets), 4), Exit::usage, HasSubstr(why));
  };
  refused({"parallel.tensor=4", "parallel.sequence=true", "data.seq_len=9", "training.micro_batch_size=3"},
          "parallel.sequence divides the rows of a micro-batch, 3 x 9 tokens, over parallel.tensor = 4 ranks: make "
          "training.micro_batch_size or data.seq_len a multiple of 4");
}

// If no ranks share layers, there is nothing to divide, and a note says so.
TEST(Shards, NoteSequenceParallelismWithoutTensorParallelism) {
  const auto notes = tiny_job({"parallel.sequence=true", "parallel.tensor_shards=2"}, 1).notes;
  EXPECT_THAT(notes, testing::Contains(HasSubstr("parallel.sequence = true has no effect with parallel.tensor = 1")));
}

// Neither do tiles of layers in virtual shards, nor a schedule without pipeline stages.
TEST(Shards, NoteSettingsWithoutAnEffect) {
  using testing::Contains;
  const std::vector<std::string> tile = {"zero.stage=3", "memory.tile=4096"};
  const auto with = [&](const std::string& set) { return tiny_job({tile[0], tile[1], set}, 2).notes; };
  const auto of_shards = HasSubstr("memory.tile = 4.0 KiB has no effect: layers in virtual shards");
  EXPECT_THAT(with("parallel.tensor=2"), Contains(of_shards));
  EXPECT_THAT(with("parallel.tensor_shards=2"), Contains(of_shards));
  EXPECT_THAT(with("zero.stage=0"), Contains(HasSubstr("no unit that can be tiled is larger")));
  const std::string schedule = "parallel.schedule=all_forward_all_backward";
  const auto without_stages = HasSubstr("has no effect with parallel.stages = 1");
  EXPECT_THAT(with(schedule), Contains(without_stages));
  EXPECT_THAT(tiny_job({schedule, "parallel.stages=2"}, 2).notes, Not(Contains(without_stages)));
}

// With nodes of four ranks, the gradients of a stage with as many data ranks stay within a node.
TEST(Shards, NoteRunsOfMicroBatchesThatCrossNodes) {
  const auto notes = [](const std::string& stages, const std::string& group) {
    Workload workload = tiny_job({stages, group, "training.gradient_accumulation_steps=4"}, 8);
    workload.nodes = {0, 0, 0, 0, 1, 1, 1, 1};
    return make_job(workload, 8, capacity_of({.device = 1 << 30, .host = 1 << 30}, 1)).notes;
  };
  const auto crosses = testing::Contains(HasSubstr("gradients cross nodes before they are summed"));
  EXPECT_THAT(notes("parallel.stages=1", "training.reduce_group=2"), crosses);
  EXPECT_THAT(notes("parallel.stages=1", "training.reduce_group=4"), Not(crosses));
  for (const char* group : {"training.reduce_group=2", "training.reduce_group=4"})
    for (const char* stages : {"parallel.stages=2", "parallel.stages=4"})
      EXPECT_THAT(notes(stages, group), Not(crosses)) << stages << ", " << group;
}

// Activations between products exist for a fourth of the rows. For each row, a block keeps its norms' outputs, the
// residual stream after attention, and the norms' statistics.
TEST(Shards, DividedRowsNeedTheirShareOfTheMemory) {
  const std::vector<std::string> sets = {"parallel.tensor=4", "model.config.n_layer=1", "data.seq_len=64",
                                         "training.micro_batch_size=4"};
  const auto saved = [&](bool sequence) {
    std::vector<std::string> all = sets;
    all.push_back(sequence ? "parallel.sequence=true" : "parallel.sequence=false");
    const Job job = tiny_job(std::move(all), 4);
    return job.model->units[1]->bytes().saved;
  };
  const Job job = tiny_job(sets, 4);
  const std::size_t rows = job.plan.tokens, width = job.model->hidden, element = size_of(job.plan.dtype);
  EXPECT_EQ(saved(false) - saved(true), rows * 3 / 4 * (3 * width * element + 4 * sizeof(float)));
}

TEST(Stages, InterleavedSchedulesThatCannotBeAreRefused) {
  const auto refused = [](std::vector<std::string> sets, int ranks, const std::string& why) {
    sets.insert(sets.end(), {"model.config.n_layer=6", "training.gradient_accumulation_steps=3"});
    EXPECT_FAILURE(tiny_job(std::move(sets), ranks), Exit::usage, HasSubstr(why));
  };
  const std::string interleaved = "parallel.schedule=interleaved";
  refused({"parallel.chunks=2", "parallel.stages=2"}, 2, "parallel.chunks = 2 is for the interleaved schedule");
  refused({interleaved, "parallel.chunks=2"}, 1, "parallel.stages is 1");
  refused({interleaved, "parallel.stages=2"}, 2, "set parallel.chunks to 2 or more");
  refused({interleaved, "parallel.stages=2", "parallel.chunks=2"}, 2,
          "a rank has 3 micro-batches per step (training.gradient_accumulation_steps or global_batch_size), and 3 is "
          "not a multiple of parallel.stages = 2: make it 4");
  refused({interleaved, "parallel.stages=3", "parallel.chunks=3"}, 3,
          "parallel.stages = 3 with parallel.chunks = 3 makes 9 pieces, but this model has only 8 units (embedding, 6 "
          "blocks, head): set at most 8 pieces");
  refused({interleaved, "parallel.stages=3", "parallel.chunks=2", "parallel.split=[1, 2, 3]"}, 3,
          "parallel.split = [1, 2, 3] has 3 numbers for 3 stages of 2 chunks and 6 blocks for the model's 6: give 6 "
          "numbers");
}

// Ranks choose algorithms for the products that they list, and make decisions by the costs of their tasks. Both must be
// the same on every rank, even if shards differ.
void expect_the_same_plans(const std::vector<std::string>& sets) {
  const Job whole = tiny_job(sets, 1);
  const auto job_of = [&](int rank) {
    Recipe shared = whole.recipe;
    shared.parallel.tensor = 4;
    return make_job(whole.with(std::move(shared)), 4, capacity_of(whole.recipe.memory, 1), Purpose::train, {}, rank);
  };
  const auto products_of = [](const Job& job) {
    std::vector<device::ProductShape> all;
    for (const auto& unit : job.model->units) unit->list_products(all);
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>> sizes;
    for (const device::ProductShape& p : all) sizes.emplace(p.m, p.n, p.k, p.accumulate);
    return sizes;
  };
  const auto alone = products_of(whole);
  const Job first = job_of(0), last = job_of(3);
  EXPECT_EQ(products_of(first), alone);
  EXPECT_EQ(products_of(last), alone);
  EXPECT_EQ(hash_of(first.plan), hash_of(last.plan));
  for (std::size_t i = 0; i < first.plan.tasks.size(); ++i)
    EXPECT_EQ(first.plan.tasks[i].cost.flops, last.plan.tasks[i].cost.flops) << i;
  const auto flops = [](const Job& job) {
    return job.model->flops_per_token(static_cast<std::size_t>(job.plan.tokens));
  };
  EXPECT_DOUBLE_EQ(flops(first), flops(whole));
  EXPECT_DOUBLE_EQ(flops(last), flops(whole));
}

// Four shards divide 301 words: the last has 73 and the others 76 each.
TEST(Shards, RanksWithFewerWordsHaveTheSamePlan) {
  expect_the_same_plans({"model.config.n_head=4", "model.config.vocab_size=301", "parallel.tensor_shards=4"});
}

// The first of four shards has the weights of the only key head.
TEST(Shards, RanksWithoutKeysHaveTheSamePlan) {
  const std::vector<std::string> sets = {"model.preset=tiny-llama", "model.config.num_key_value_heads=1",
                                         "parallel.tensor_shards=4", "training.precision=bf16"};
  std::vector<std::string> biased = sets, adapted = sets;
  biased.emplace_back("model.config.model_type=\"qwen2\"");
  // It has the largest scratch of the block.
  adapted.insert(adapted.end(), {"adapter.kind=lora", "adapter.rank=32", "model.config.intermediate_size=64",
                                 "data.seq_len=512", R"(adapter.target_modules=["q_proj", "k_proj", "v_proj"])"});
  for (const auto& one : {sets, biased, adapted}) {
    SCOPED_TRACE(one.back());
    expect_the_same_plans(one);
  }
}

// The stretches of a call have all of its products, wherever backward ends within the lowest block that trains.
TEST(Shards, StretchesDivideTheProductsOfACall) {
  for (const char* layer : {"down_proj", "up_proj", "o_proj", "q_proj"})
    for (const bool sequence : {false, true}) {
      const Job job =
          tiny_job({"model.preset=tiny-llama", "parallel.tensor=2", fmt::format("parallel.sequence={}", sequence),
                    "adapter.kind=lora", "adapter.rank=4", fmt::format("adapter.target_modules=[\"{}\"]", layer)},
                   2);
      std::map<int, double> flops;  // of backward, by unit
      for (const Task& task : job.plan.tasks)
        if (task.kind == TaskKind::backward) flops[task.unit] += task.cost.flops;
      EXPECT_TRUE(flops.contains(1));
      for (const auto& [index, sum] : flops) {
        const models::Unit& unit = *job.model->units[static_cast<std::size_t>(index)];
        const double all = unit.work(models::Pass::backward, unit.all_parts()).flops;
        EXPECT_GT(all, 0);
        EXPECT_DOUBLE_EQ(sum, job.plan.accumulation * all)
            << unit.name() << ", " << layer << ", rows divided: " << sequence;
      }
    }
}

// The shards of all ranks of a group are those of one rank, in the same order.
TEST(Shards, RanksOfAGroupHaveTheirOwnShards) {
  const std::vector<std::string> sets = {"parallel.tensor_shards=4"};
  const Job whole = tiny_job(sets, 1);
  const models::Unit& all = *whole.model->units[1];
  for (const int rank : {0, 1}) {
    Recipe shared = whole.recipe;
    shared.parallel.tensor = 2;
    const Job job =
        make_job(whole.with(std::move(shared)), 2, capacity_of(whole.recipe.memory, 1), Purpose::train, {}, rank);
    const models::Unit& own = *job.model->units[1];
    EXPECT_DOUBLE_EQ(job.model->flops_per_token(32), whole.model->flops_per_token(32)) << "of the whole model";
    EXPECT_EQ(own.seams(models::Pass::forward, true).size(), 2u);
    EXPECT_EQ(own.seams(models::Pass::backward, true).size(), 2u);
    for (std::size_t p = 0; p < own.parameters().size(); ++p) {
      const models::Parameter &a = all.parameters()[p], &b = own.parameters()[p];
      ASSERT_EQ(b.pieces(), a.pieces() == 4 ? 2u : 1u) << b.name;
      EXPECT_EQ(b.offset, a.offset) << b.name << ", complete tensors come first, and each rank's first shard follows";
      for (std::size_t i = 0; i < b.pieces(); ++i)
        EXPECT_EQ(b.piece(i).shard, b.pieces() == 1 ? 0 : 2 * static_cast<std::size_t>(rank) + i) << b.name;
    }
  }
}

TEST(Shards, PiecesFollowCompleteTensorsAtBlockBoundaries) {
  const Job job = tiny_job({"parallel.tensor_shards=4"}, 1);
  const models::Unit& block = *job.model->units[1];
  EXPECT_EQ(block.parts().size(), 1u);
  std::size_t whole = 0;
  for (const models::Parameter& p : block.parameters())
    if (p.slice.shards == 1) whole = std::max(whole, p.offset + p.size());
  const std::size_t first = (whole + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  const std::size_t stride = (block.size() - first) / 4;
  EXPECT_EQ(stride % kShardAlignment, 0u);
  std::size_t cut = 0;
  for (const models::Parameter& p : block.parameters()) {
    if (p.slice.shards == 1) continue;
    ++cut;
    EXPECT_EQ(p.size(), 4 * p.piece_capacity());
    for (std::size_t shard = 0; shard < 4; ++shard) {
      EXPECT_GE(p.offset_of(shard), first + shard * stride);
      EXPECT_LE(p.offset_of(shard) + p.piece_size(shard), first + (shard + 1) * stride);
      EXPECT_EQ(p.offset_of(shard) - p.offset_of(0), shard * stride);
      EXPECT_EQ(p.offset_of(shard) % models::kParameterAlignment, 0u);
    }
  }
  EXPECT_EQ(cut, 6u) << "four matrices, and the biases of two of them";
}

// Rules about a tensor's size look at the whole tensor: pieces of 128 x 128 elements are below the limit of 8 bits.
TEST(Shards, MomentFormatsFollowTheCompleteTensor) {
  const Job job = tiny_job({"parallel.tensor_shards=4", "optimizer.name=adamw8bit", "model.config.n_embd=64"}, 1);
  for (const runtime::TensorRange& range : job.plan.layout.units[1].ranges) {
    const models::Parameter& p = job.model->units[1]->parameters()[range.parameter];
    if (p.name.ends_with("attn.c_proj.weight")) {
      EXPECT_LT(p.piece_size(0), 4096u);
      EXPECT_EQ(range.moments, device::StorageFormat::block8);
    }
  }
}

TEST(ShardsOverNodes, SuggestADegreeThatStaysInANode) {
  using testing::HasSubstr;
  const auto note = [](int tensor, const std::vector<int>& nodes) {
    return note_of_layers_over_nodes({.world = static_cast<int>(nodes.size()), .tensor = tensor}, nodes).value_or("");
  };
  EXPECT_EQ(note(4, {}), "");
  EXPECT_EQ(note(1, {0, 1, 2, 3}), "");
  EXPECT_EQ(note(2, {0, 0, 1, 1}), "");
  EXPECT_THAT(note(4, {0, 0, 1, 1}), testing::AllOf(HasSubstr("on 2 nodes"), HasSubstr("with 2 they would stay")));
  EXPECT_THAT(note(2, {0, 1, 2, 3}), HasSubstr("start a multiple of 2 ranks on each node"));
  EXPECT_THAT(note(2, {0, 1, 0, 1}), HasSubstr("start the ranks node by node"));
  EXPECT_THAT(note(4, {0, 0, 0, 1, 1, 1, 2, 2}), HasSubstr("on 2 nodes")) << "nodes that differ";
}

}  // namespace
}  // namespace strata::runtime
