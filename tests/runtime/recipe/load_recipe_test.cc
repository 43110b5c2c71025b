#include "runtime/recipe/load_recipe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/recipe/keys.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Sets = std::vector<std::string>;

TEST(LoadRecipeTest, ReadsAFileAndOverridesIt) {
  const tests::ScratchFolder folder;
  const auto file = folder.write("runs/r.toml", R"(
[model]
path = "../weights"
[model.config]
num_hidden_layers = 4
rope_scaling = { rope_type = "linear", factor = 2.0 }
[data]
train = ["a.bin", "/data/*.bin"]
seq_len = 256
[training]
max_steps = 10
precision = "fp32"
recompute = [3, 1]
[optimizer]
learning_rate = 1
betas = [0, 0.999]
[memory]
device = "1.5GB"
host = 4096
[report]
jsonl = "out.jsonl"
)");
  const Recipe r = load_recipe(file, Sets{"training.max_steps=20", "report.summary=s.json", "training.seed = 7",
                                          "model.config.rope_scaling.factor=4", "data.validation='v.bin'"});
  const auto base = (folder.path() / "runs").string();
  EXPECT_EQ(r.model.path, folder.path() / "weights");
  EXPECT_EQ(r.model.config.at("num_hidden_layers"), "4");
  EXPECT_EQ(r.model.config.at("rope_scaling"), R"({"factor":2.0,"rope_type":"linear"})");
  EXPECT_EQ(r.model.config.at("rope_scaling.factor"), "4");
  EXPECT_THAT(r.data.train.at(0).files, ElementsAre(base + "/a.bin", "/data/*.bin"));
  EXPECT_THAT(r.data.validation, ElementsAre("v.bin"));
  EXPECT_EQ(r.training.max_steps, 20);
  EXPECT_EQ(r.training.seed, 7u);
  EXPECT_EQ(r.training.recompute.kind, Recompute::Kind::list);
  EXPECT_THAT(r.training.recompute.blocks, ElementsAre(1, 3));
  EXPECT_EQ(r.optimizer.learning_rate, 1.0);
  EXPECT_EQ(r.optimizer.betas, (std::array{0.0, 0.999}));
  EXPECT_EQ(r.memory.device, 1'500'000'000u);
  EXPECT_EQ(r.memory.host, 4096u);
  EXPECT_EQ(r.report.jsonl, base + "/out.jsonl");
  EXPECT_EQ(r.report.summary, "s.json");
}

// A user may type `eval models/llama`.
TEST(LoadRecipeTest, RefusesAFolder) {
  const tests::ScratchFolder folder;
  EXPECT_FAILURE(
      load_recipe(folder.path(), {}), Exit::usage,
      AllOf(HasSubstr("is a folder, not a TOML file"), HasSubstr("--set model.path=" + folder.path().string())));
}

TEST(LoadRecipeTest, ContradictionsNameBothKeys) {
  EXPECT_FAILURE(recipe_with({"model.path=x"}), Exit::usage, AllOf(HasSubstr("model.path"), HasSubstr("model.preset")));
  EXPECT_FAILURE(
      recipe_with({"training.gradient_accumulation_steps=2", "training.global_batch_size=8"}), Exit::usage,
      AllOf(HasSubstr("training.gradient_accumulation_steps = 2"), HasSubstr("training.global_batch_size = 8")));
  EXPECT_FAILURE(recipe_with({"model.init=pretrained"}), Exit::usage,
                 AllOf(HasSubstr("model.init"), HasSubstr("model.preset")));
  EXPECT_FAILURE(load_recipe(std::nullopt, Sets{}), Exit::usage,
                 AllOf(HasSubstr("model.path"), HasSubstr("model.preset")));
}

TEST(LoadRecipeTest, LocalSumsHaveNoGroups) {
  EXPECT_EQ(recipe_with({"training.reduce_group=4"}).training.reduce_group, 4);
  EXPECT_EQ(recipe_with({"training.reduce_group=1", "training.reduce=fast"}).training.reduce, Reduce::fast);
  EXPECT_FAILURE(recipe_with({"training.reduce_group=4", "training.reduce=fast"}), Exit::usage,
                 AllOf(HasSubstr("training.reduce = \"fast\""), HasSubstr("training.reduce_group = 4")));
}

TEST(LoadRecipeTest, CheckpointsNeedAFolder) {
  for (const char* set : {"checkpoint.every=1", "checkpoint.stop_after=3"}) {
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, AllOf(HasSubstr("checkpoint."), HasSubstr("needs checkpoint.dir")));
    EXPECT_TRUE(recipe_with({set, "checkpoint.dir=/x"}).checkpoint.dir);
  }
  EXPECT_EQ(recipe_with({"checkpoint.every=0", "checkpoint.resume=none"}).checkpoint.resume, "none");
}

TEST(LoadRecipeTest, TheLastValueCounts) {
  for (const char* set :
       {"zero.optimizer=device", "device.kind=cpu", "training.reduce_group=1", "optimizer.name=lion"}) {
    EXPECT_EQ(tests::failure_of([&] { (void)recipe_with({set}); }).code(), Exit::done) << set;
  }
  EXPECT_EQ(recipe_with({"zero.optimizer=host", "zero.optimizer=device"}).zero.optimizer, Tier::device);
  EXPECT_FAILURE(recipe_with({"zero.optimizer=disk"}), Exit::usage, HasSubstr("expected"));
}

TEST(LoadRecipeTest, TiersNeedDrivesOrRecomputation) {
  EXPECT_FAILURE(recipe_with({"zero.gradients=nvme"}), Exit::usage,
                 AllOf(HasSubstr("zero.gradients"), HasSubstr("memory.nvme")));
  EXPECT_EQ(recipe_with({"zero.gradients=nvme", "memory.nvme=/x"}).zero.gradients, Tier::nvme);
  EXPECT_FAILURE(recipe_with({"zero.activations=host"}), Exit::usage,
                 AllOf(HasSubstr("zero.activations"), HasSubstr("training.recompute")));
  EXPECT_EQ(recipe_with({"zero.activations=host", "training.recompute=sqrt"}).zero.activations, Tier::host);
}

// The number must not depend on the free memory at the start.
TEST(LoadRecipeTest, AnAutomaticBatchNeedsAMemoryLimit) {
  EXPECT_FAILURE(recipe_with({"training.micro_batch_size=auto"}), Exit::usage,
                 AllOf(HasSubstr("training.micro_batch_size = auto"), HasSubstr("needs memory.device")));
  const std::vector<std::string> sets = {"training.micro_batch_size=auto", "memory.device=1GiB",
                                         "training.recompute=block", "zero.activations=host"};
  EXPECT_FAILURE(recipe_with(sets), Exit::usage, HasSubstr("needs memory.host, too"));
  const Recipe r = recipe_with({sets[0], sets[1]});
  EXPECT_EQ(r.training.micro_batch_size, kAutomaticBatch);
  EXPECT_THAT(to_toml(r), HasSubstr("training.micro_batch_size = \"auto\"\n"));
  EXPECT_EQ(recipe_with({sets[0], sets[1], "training.micro_batch_size=4"}).training.micro_batch_size, 4);
}

TEST(LoadRecipeTest, AReportFolderNamesUnnamedReports) {
  const Recipe::Report report = recipe_with({"report.dir=run", "report.csv=my.csv"}).report;
  EXPECT_EQ(report.jsonl->filename(), "report.jsonl");
  EXPECT_EQ(report.jsonl->parent_path().filename(), "run");
  EXPECT_EQ(report.csv->filename(), "my.csv");
  EXPECT_EQ(report.tensorboard->filename(), "tensorboard");
  EXPECT_EQ(recipe_with({"report.dir=run", "report.trace_steps=3"}).report.trace_steps.size(), 1u)
      << "report.trace is set by report.dir";
  EXPECT_FALSE(recipe_with({"report.csv=my.csv"}).report.jsonl.has_value());
}

TEST(LoadRecipeTest, KeysOfAnotherOptimizerAreNoted) {
  EXPECT_TRUE(notes_with({"optimizer.betas=[0.9,0.99]", "optimizer.eps=1e-6"}).empty());
  EXPECT_TRUE(notes_with({"optimizer.name=sgd", "optimizer.momentum=0.5"}).empty());
  EXPECT_THAT(notes_with({"optimizer.momentum=0.5"}),
              ElementsAre("optimizer.momentum = 0.5 has no effect: optimizer.name is adamw"));
  EXPECT_EQ(notes_with({"optimizer.name=sgd", "optimizer.betas=[0.9,0.99]", "optimizer.eps=1e-6"}).size(), 2u);
}

TEST(LoadRecipeTest, KeysWithoutEffectAreNoted) {
  EXPECT_THAT(notes_with({"scheduler.name=constant", "scheduler.min_lr_ratio=0.2"}),
              ElementsAre("scheduler.min_lr_ratio = 0.2 has no effect: scheduler.name is \"constant\""));
  EXPECT_THAT(notes_with({"fp16.initial_scale=8", "fp16.growth_interval=5"}),
              ElementsAre("fp16.initial_scale = 8 has no effect: training.precision is \"bf16\"",
                          HasSubstr("fp16.growth_interval = 5 has no effect")));
  EXPECT_THAT(notes_with({"memory.verify=true", "memory.io_direct=false"}),
              ElementsAre("memory.verify = true has no effect: no zero.* key is \"nvme\"", HasSubstr("io_direct")));
  EXPECT_THAT(notes_with({"data.packing=stream", "data.long=drop"}),
              ElementsAre("data.long = \"drop\" has no effect: data.packing is \"stream\""));
  EXPECT_THAT(notes_with({"checkpoint.keep=3"}),
              ElementsAre("checkpoint.keep = 3 has no effect: without checkpoint.dir, no checkpoint is written"));
  EXPECT_THAT(notes_with({"control.metrics_public=true"}),
              ElementsAre("control.metrics_public = true has no effect: control.metrics is \"off\""));
  EXPECT_THAT(notes_with({"checkpoint.dir=c", "checkpoint.stop_after=5", "training.max_steps=2"}),
              ElementsAre("checkpoint.stop_after = 5 has no effect: training.max_steps is 2"));
  const Sets used = {"scheduler.min_lr_ratio=0.2",
                     "training.precision=fp16",
                     "fp16.initial_scale=8",
                     "memory.verify=true",
                     "memory.nvme=/x",
                     "zero.optimizer=nvme",
                     "data.long=drop",
                     "checkpoint.keep=3",
                     "checkpoint.dir=c",
                     "control.metrics_public=true",
                     "control.metrics=localhost:9",
                     "checkpoint.stop_after=2",
                     "training.max_steps=2"};
  EXPECT_THAT(notes_with(used), testing::IsEmpty());
}

TEST(LoadRecipeTest, NamesAMistakeInASource) {
  const tests::ScratchFolder folder;
  const auto refused = [&](const std::string& source, const std::string& why) {
    const auto file = folder.write("r.toml", "[[data.train]]\nfiles = \"a\"\nweight = 0.7\n[[data.train]]\n" + source);
    EXPECT_FAILURE(load_recipe(file, Sets{"model.preset=tiny-gpt2"}), Exit::usage,
                   AllOf(testing::StartsWith("data.train (" + file.string()), testing::EndsWith(why)));
  };
  refused("fles = \"b\"\n", "source 2 has the unknown key fles: did you mean files?");
  refused("files = \"b\"\nname = \"web\"\n", "source 2 has the unknown key name: its keys are files and weight");
  refused("files = \"b\"\nweight = 0\n", "source 2 has weight = 0: expected a number above 0, at most 1e9");
  refused("files = [3]\n", "source 2 has files = [3]: expected a path or glob, or a list of them");
  refused("weight = 0.3\n", "source 2 has no files: give files = PATH");
  EXPECT_FAILURE(recipe_with({"data.train=[{files = \"a\", weight = 0.7}, 3]"}), Exit::usage,
                 HasSubstr("data.train = [{files = \"a\", weight = 0.7}, 3] (--set): expected"));
}

// The file is a configuration of another program.
TEST(LoadRecipeTest, UnknownKeysAreListedTogether) {
  const tests::ScratchFolder folder;
  const auto file = folder.write("r.toml", "zbase = 1\n\"a\\nb\" = 2\n[zero]\nstag = 2\nstage = \"high\"\n");
  const std::string path = file.string();
  EXPECT_FAILURE(
      load_recipe(file, Sets{"optimizer=3"}), Exit::usage,
      "the recipe has 4 unknown keys (strata keys lists all):\n  zbase (" + path +
          ", line 1): no key has a similar name\n  ab (" + path +
          ", line 2): no key has a similar name\n  zero.stag (" + path +
          ", line 4): did you mean zero.stage?\n  optimizer (--set) is a section of keys and takes no value");
  std::string many;
  for (int i = 0; i < 13; ++i) many += fmt::format("zz{} = 1\n", i);
  EXPECT_FAILURE(load_recipe(folder.write("m.toml", many), {}), Exit::usage,
                 AllOf(HasSubstr("zz9 ("), Not(HasSubstr("zz10")), testing::EndsWith("\n  and 3 more")));
}

TEST(LoadRecipeTest, ExplainsTheMostCommonMistakes) {
  const tests::ScratchFolder folder;
  const auto refused = [&](const char* text, const auto& how) {
    EXPECT_FAILURE(load_recipe(folder.write("r.toml", text), {}), Exit::usage, how);
  };
  refused("base_model: gpt2\n", AllOf(HasSubstr("line 1"), HasSubstr("is this YAML?")));
  refused("[model]\npath = ../models/x\n", AllOf(HasSubstr("line 2"), HasSubstr("KEY = \"TEXT\"")));
  refused("[model]\npath = gpt2\n", HasSubstr("KEY = \"TEXT\""));
  refused("[training]\nmax_steps = 1 2\n", Not(HasSubstr("(")));
}

// A manifest has the text of every key, and a run queries some of them.
TEST(LoadRecipeTest, AnEmptyTableIsAValue) {
  EXPECT_FAILURE(recipe_with({"data.packing={}"}), Exit::usage,
                 testing::HasSubstr("data.packing = {} (--set): expected"));
  EXPECT_FAILURE(recipe_with({"optimizer={}"}), Exit::usage, testing::HasSubstr("is a section of keys"));
  EXPECT_FAILURE(recipe_with({"data.train=[{files = \"a\", weight = 1e300}]"}), Exit::usage,
                 testing::HasSubstr("at most 1e9"));
}

TEST(StoredKeysTest, SurviveARoundTrip) {
  const Recipe wrote = recipe_with({"scheduler.name=wsd", "optimizer.learning_rate=0.00123", "training.max_steps=77",
                                    "checkpoint.dir=/somewhere", "scheduler.warmup_steps=5"});
  std::map<std::string, std::string> stored;
  for (const RecipeKey& key : recipe_keys()) stored[key.name] = key.text(wrote);
  stored.erase("scheduler.warmup_steps");
  constexpr std::array<std::string_view, 4> kNames = {"scheduler.name", "optimizer.learning_rate", "training.max_steps",
                                                      "scheduler.warmup_steps"};
  const Recipe read = stored_keys(stored, kNames);
  EXPECT_EQ(read.scheduler.name, Decay::wsd);
  EXPECT_EQ(read.optimizer.learning_rate, 0.00123);
  EXPECT_EQ(read.training.max_steps, 77);
  EXPECT_EQ(read.scheduler.warmup_steps, 0) << "checkpoints do not store it";
  EXPECT_FALSE(read.checkpoint.dir) << "it was not set";
  stored["scheduler.name"] = "\"steep\"";
  EXPECT_FAILURE(stored_keys(stored, kNames), Exit::usage, HasSubstr("scheduler.name = \"steep\""));
}

TEST(LoadRecipeTest, BrokenFilesAreRefusedWithTheirLine) {
  const tests::ScratchFolder folder;
  EXPECT_FAILURE(load_recipe(folder.write("r.toml", "a = 1\nb = = 2\n"), Sets{}), Exit::usage,
                 AllOf(HasSubstr("r.toml"), HasSubstr("line 2")));
  EXPECT_FAILURE(load_recipe(folder.write("r.toml", "[zero]\nstag = 2\n"), Sets{}), Exit::usage,
                 AllOf(HasSubstr("zero.stag"), HasSubstr("line 2"), HasSubstr("zero.stage")));
  EXPECT_FAILURE(load_recipe(folder.write("r.toml", "x = " + std::string(5000, '[')), Sets{}), Exit::usage,
                 HasSubstr("r.toml"));
  EXPECT_FAILURE(load_recipe(folder.write("r.toml", std::string(3 << 20, '\n')), Sets{}), Exit::usage,
                 HasSubstr("1 MiB"));
  // toml++ 3.3 would abort here.
  EXPECT_FAILURE(load_recipe(folder.write("r.toml", std::string("[[\0\n", 4)), Sets{}), Exit::usage,
                 HasSubstr("not TOML"));
  EXPECT_FAILURE(load_recipe(folder.path() / "none.toml", Sets{}), Exit::usage, HasSubstr("No such file"));
  const auto dotted = folder.write("dots.toml", "# " + std::string(200, '.') + "\n[training]\nmax_steps = 3\n");
  EXPECT_EQ(load_recipe(dotted, Sets{"model.preset=tiny-gpt2"}).training.max_steps, 3) << "no key";
  EXPECT_FAILURE(load_recipe(folder.path(), Sets{}), Exit::usage, HasSubstr("is a folder"));
}

}  // namespace
}  // namespace strata::runtime
