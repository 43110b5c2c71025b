// A checkpoint's bytes do not depend on the mesh that wrote it, and any mesh resumes from it with the same bits.
#include <gmock/gmock.h>
#include <xxhash.h>

#include <map>
#include <string>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/run/resume.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/cut_checkpoint.h"
#include "tests/runtime/saved_run.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The bytes of every tensor's state, by KIND/TENSOR.
std::map<std::string, std::string> state_of(const fs::path& path) {
  const Checkpoint checkpoint(path);
  std::vector<std::byte> buffer(kBlockBytes);
  std::map<std::string, std::string> out;
  for (const std::string& kind : checkpoint.kinds())
    for (const TensorEntry& tensor : checkpoint.manifest().tensors)
      for (const Extent& e : checkpoint.extents(kind, tensor.name))
        for (std::size_t block = 0; block < e.blocks(); ++block) {
          const auto bytes = checkpoint.read_block(e, block, buffer);
          out[kind + "/" + tensor.name].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }
  return out;
}

struct Writer {
  int ranks;
  std::vector<std::string> sets;
};

class Meshes : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(States, Meshes,
                         testing::Values("training.precision=fp32", "training.precision=bf16",
                                         "optimizer.name=adamw8bit"));

TEST_P(Meshes, WriteTheSameBytesAndResumeFromOneAnother) {
  const SavedRun run;
  const std::string nvme = "memory.nvme=" + run.folder().path().string();
  const std::vector<Writer> writers = {
      {1, {"zero.stage=0"}},
      {2, {"zero.stage=1"}},
      {4, {"zero.stage=2"}},
      {4, {"zero.stage=3"}},
      {4, {"zero.stage=3", "zero.parameters_group=2"}},
      {4, {"zero.stage=2", "zero.optimizer_group=2"}},
      {2, {"zero.stage=3", "zero.optimizer=host"}},
      {1, {"zero.stage=3", "zero.parameters=nvme", "zero.optimizer=nvme", nvme}},
  };
  const auto sets = [&](const Writer& writer, bool fresh) {
    std::vector<std::string> all = writer.sets;
    all.insert(all.end(), {GetParam(), "checkpoint.resume=none"});
    if (!fresh) all.pop_back();
    return run.sets(writer.ranks, all);
  };
  const auto whole = run.run(1, sets(writers[0], true), 6);
  std::map<std::string, std::string> first;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    SCOPED_TRACE(i);
    fs::remove_all(run.checkpoints());
    run.run(writers[i].ranks, sets(writers[i], true), 3, {3});
    const auto state = state_of(run.checkpoints() / "step-00000003");
    if (i == 0) first = state;
    EXPECT_TRUE(state == first) << "bytes of the checkpoint depend on the mesh";
    const Writer& reader = writers[(i + 3) % writers.size()];
    const auto rest = run.run(reader.ranks, sets(reader, false), 6);
    EXPECT_EQ(rest.resumed, "step-00000003");
    EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 3, whole.losses.end()));
    EXPECT_EQ(rest.weights, whole.weights);
  }
}

TEST(LoadStateTest, LoadsBoxesIntoTheirPlaces) {
  const SavedRun run;
  const auto whole = run.run(2, run.sets(2), 6, {3});
  const fs::path written = run.checkpoints() / "step-00000003", cut = run.folder().path() / "cut/step-00000003";
  cut_columns(written, cut);
  for (const Writer& reader : {Writer{1, {}}, Writer{2, {"zero.stage=3"}}, Writer{4, {"zero.stage=1"}}}) {
    auto sets = reader.sets;
    sets.push_back("checkpoint.resume=" + cut.string());
    const auto rest = run.run(reader.ranks, run.sets(reader.ranks, sets), 6);
    EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 3, whole.losses.end()));
    EXPECT_EQ(rest.weights, whole.weights);
  }
}

// The trained tensors' rows in two boxes each, if both halves begin with a block.
void split_rows(Job& job) {
  for (std::size_t unit = 0; unit < job.plan.layout.units.size(); ++unit) {
    const auto parameters = job.model->units[unit]->parameters();
    std::vector<TensorRange> ranges;
    for (const TensorRange& range : job.plan.layout.units[unit].ranges) {
      Box upper = range.box_of(parameters[range.parameter]);
      upper.size[0] /= 2;
      const std::size_t middle = upper.elements();
      if (middle % device::kMomentBlock != 0 || upper.size[0] * 2 != upper.shape[0]) {
        ranges.push_back(range);
        continue;
      }
      Box lower = upper;
      lower.offset[0] = upper.size[0];
      ranges.push_back(range);
      ranges.back().end = range.begin + middle;
      ranges.back().box = upper;
      ranges.push_back(range);
      ranges.back().begin += middle;
      ranges.back().box = lower;
    }
    job.plan.layout.units[unit].ranges = ranges;
  }
}

// The boxes that ranks hold are written as boxes and read back into them.
TEST(LoadStateTest, RunsOfALayoutMayBeBoxes) {
  for (const char* optimizer : {"optimizer.name=adamw", "optimizer.moments=bf16"}) {
    const SavedRun run;
    const auto sets = run.sets(2, {optimizer, "zero.stage=2"});
    const auto whole = run.run(2, sets, 3, {1, 2, 3});
    const auto written = state_of(run.checkpoints() / "step-00000003");
    const Recipe recipe = load_recipe(std::nullopt, sets);
    const auto posix = posix_file_system();
    const fs::path boxes = run.folder().path() / "boxes";
    comm::run_threads(2, [&](comm::World& world) {
      Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
      split_rows(job);
      const auto note = [](const std::string&) {};
      Trainer trainer(job, world, 1);
      (void)start_or_resume(trainer, job, world, 1, note);
      CheckpointFolder folder(boxes, 1, *posix, world, note);
      CheckpointWriter writer(job, world, trainer.executor(), folder);
      writer.start(trainer.progress());
      writer.finish();
    });
    const Checkpoint checkpoint(boxes / "step-00000003");
    EXPECT_TRUE(checkpoint.manifest().boxes);
    EXPECT_GT(checkpoint.extents("moment1", "transformer.h.0.mlp.c_fc.weight").size(), 1u);
    EXPECT_TRUE(state_of(boxes / "step-00000003") == written);
  }
}

// Blocks of 8-bit moments count from their box's first element, so they cannot be recombined into other boxes.
TEST(LoadStateTest, RefusesBlocksOfOtherBoxes) {
  const SavedRun run;
  const auto sets = run.sets(1, {"optimizer.name=adamw8bit"});
  run.run(1, sets, 3, {3});
  const Recipe recipe = load_recipe(std::nullopt, sets);
  EXPECT_FAILURE(comm::run_threads(1,
                                   [&](comm::World& world) {
                                     Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
                                     split_rows(job);
                                     Trainer trainer(job, world, 1);
                                     (void)start_or_resume(trainer, job, world, 1, [](const std::string&) {});
                                   }),
                 Exit::usage, HasSubstr("parallel.tensor_shards"));
}

// Loads a run's newest checkpoint into ranks and writes it again, with no step between.
void write_again(const std::vector<std::string>& sets, int ranks, const fs::path& folder) {
  const Recipe recipe = load_recipe(std::nullopt, sets);
  const auto posix = posix_file_system();
  comm::run_threads(ranks, [&](comm::World& world) {
    const Job job = make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1));
    const auto note = [](const std::string&) {};
    Trainer trainer(job, world, 1);
    (void)start_or_resume(trainer, job, world, 1, note);
    CheckpointFolder to(folder, 1, *posix, world, note);
    CheckpointWriter writer(job, world, trainer.executor(), to, trainer.base());
    writer.start(trainer.progress());
    writer.finish();
  });
}

// The checkpoints in tests/golden/checkpoints were written before there were boxes: by two ranks with 8-bit moments,
// and for an adapter.
TEST(LoadStateTest, OlderCheckpointsLoad) {
  struct Older {
    const char* name;
    std::vector<std::string> sets;
    const char* state;
  };
  const std::vector<Older> all = {
      {"version-1", {"optimizer.name=adamw8bit"}, "fe1aa8ad99b53601"},
      {"version-2", {"adapter.kind=lora", "adapter.rank=2"}, "9ad34afd4fe85065"},
  };
  for (const Older& older : all) {
    SCOPED_TRACE(older.name);
    const SavedRun run;
    fs::create_directories(run.checkpoints());
    fs::copy(tests::source_dir() / "tests/golden/checkpoints" / older.name, run.checkpoints(),
             fs::copy_options::recursive);
    const auto state = state_of(run.checkpoints() / "step-00000002");
    std::uint64_t sum = 0;
    for (const auto& [name, bytes] : state) sum = XXH3_64bits_withSeed(bytes.data(), bytes.size(), sum);
    EXPECT_EQ(fmt::format("{:016x}", sum), older.state);
    std::vector<std::string> sets = {"model.config.n_layer=1",
                                     "model.config.n_embd=16",
                                     "model.config.n_head=2",
                                     "model.config.vocab_size=260",
                                     "model.config.n_positions=16",
                                     "model.config.resid_pdrop=0.0",
                                     "zero.stage=3"};
    sets.insert(sets.end(), older.sets.begin(), older.sets.end());
    const fs::path again = run.folder().path() / "again";
    write_again(run.sets(4, sets), 4, again);
    EXPECT_TRUE(state_of(again / "step-00000002") == state);
    const auto rest = run.run(2, run.sets(2, sets), 3);
    EXPECT_EQ(rest.resumed, "step-00000002");
    EXPECT_EQ(rest.losses.size(), 1u);
  }
}

}  // namespace
}  // namespace strata::runtime
