#include "runtime/recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "runtime/recipe/keys.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using Sets = std::vector<std::string>;

Recipe with(Sets sets) {
  sets.insert(sets.begin(), "model.preset=tiny-gpt2");
  return load_recipe(std::nullopt, sets);
}

TEST(RecipeTest, DefaultsAreTheDocumentedOnes) {
  const Recipe r = with({});
  EXPECT_EQ(r.model.init, Init::random);
  EXPECT_EQ(r.data.seq_len, 1024);
  EXPECT_EQ(r.data.order, DataOrder::shuffle);
  EXPECT_FALSE(r.training.max_steps.has_value());
  EXPECT_EQ(r.training.precision, device::DType::bf16);
  EXPECT_EQ(r.training.max_grad_norm, 1.0);
  EXPECT_EQ(r.optimizer.betas, (std::array{0.9, 0.95}));
  EXPECT_EQ(r.scheduler.name, Decay::cosine);
  EXPECT_EQ(r.memory.prefetch, 2);
  EXPECT_EQ(r.accumulation_steps(8), 1);
  EXPECT_EQ(load_recipe(std::nullopt, Sets{"model.path=m"}).model.init, Init::pretrained);
  EXPECT_EQ(load_recipe(std::nullopt, Sets{"model.path=m", "model.init=random"}).model.init, Init::random);
}

TEST(RecipeTest, ReadsAFileAndOverridesIt) {
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

TEST(RecipeTest, HowTheNvmeTierIsReadAndWritten) {
  const offload::IoOptions chosen = with({}).io_options();
  EXPECT_FALSE(chosen.engine || chosen.direct || chosen.registered || chosen.verify);
  const offload::IoOptions forced = with({"memory.io_engine=libaio", "memory.io_direct=false", "memory.verify=true",
                                          "memory.io_registered=true", "memory.io_registered=auto"})
                                        .io_options();
  EXPECT_EQ(forced.engine, offload::Engine::libaio);
  EXPECT_EQ(forced.direct, false);
  EXPECT_EQ(forced.registered, std::nullopt);
  EXPECT_TRUE(forced.verify);
  EXPECT_FAILURE(with({"memory.io_engine=aio"}), Exit::usage, HasSubstr("\"libaio\""));
  EXPECT_FAILURE(with({"memory.io_direct=1"}), Exit::usage, HasSubstr("true or false"));
  EXPECT_FAILURE(with({"memory.verify=auto"}), Exit::usage, HasSubstr("true or false"));
}

TEST(RecipeTest, SourcesWithWeights) {
  const tests::ScratchFolder folder;
  const auto file = folder.write("r.toml", R"(
model.preset = "tiny-gpt2"
[[data.train]]
files = "a/*.bin"
weight = 0.7
[[data.train]]
files = ["b.bin", "c.bin"]
)");
  const Recipe r = load_recipe(file, Sets{});
  ASSERT_EQ(r.data.train.size(), 2u);
  EXPECT_THAT(r.data.train[0].files, ElementsAre((folder.path() / "a/*.bin").string()));
  EXPECT_EQ(r.data.train[0].weight, 0.7);
  EXPECT_EQ(r.data.train[1].files.size(), 2u);
  EXPECT_EQ(r.data.train[1].weight, 1);
  EXPECT_THAT(to_text(r), HasSubstr("\ndata.train.weights = [0.7, 1]\n"));
  EXPECT_THAT(to_text(with({R"(data.train=[{files="a", weight=2}, {files="b"}])"})),
              HasSubstr(R"(data.train = [{files = ["a"], weight = 2}, {files = ["b"], weight = 1}])"));
  EXPECT_THAT(to_text(with({"data.train=a"})), Not(HasSubstr("data.train.weights")));
  for (const char* bad : {R"([{files="a", weight=0}])", R"([{files="a", weight=-1}])", R"([{files="a", weight="b"}])",
                          R"([{weight=1}])", R"([{files="a", wait=1}])", R"([{files="a"}, "b"])", R"([{files=[]}])"})
    EXPECT_FAILURE(with({std::string("data.train=") + bad}), Exit::usage,
                   AllOf(HasSubstr("data.train = "), HasSubstr("weights above 0")));
}

TEST(RecipeTest, ASetThatIsNoTomlIsAString) {
  EXPECT_THAT(with({"data.train=shards/00.bin"}).data.train.at(0).files, ElementsAre("shards/00.bin"));
  EXPECT_THAT(with({R"(data.train=["a", "b"])"}).data.train.at(0).files, ElementsAre("a", "b"));
  EXPECT_EQ(with({"optimizer={eps=1e-6}"}).optimizer.eps, 1e-6);
  EXPECT_EQ(with({"model.config.rope_scaling=null"}).model.config.at("rope_scaling"), "null");
  EXPECT_EQ(with({"model.config.name='null'"}).model.config.at("name"), "\"null\"");
  EXPECT_EQ(with({"model.config.flag=true"}).model.config.at("flag"), "true");
  EXPECT_EQ(with({"memory.device=2GiB"}).memory.device, std::uint64_t{2} << 30);
  EXPECT_FAILURE(with({"training.seed=1\ntraining.max_steps=2"}), Exit::usage, HasSubstr("training.seed"));
}

TEST(RecipeTest, UnknownKeysNameTheNearest) {
  const auto nearest = [](const std::string& set, const std::string& known) {
    EXPECT_FAILURE(with({set}), Exit::usage,
                   AllOf(HasSubstr("unknown key " + set.substr(0, set.find('='))), HasSubstr("is " + known)));
  };
  nearest("training.precison=1", "training.precision");
  nearest("precision=1", "training.precision");
  nearest("optimizer.lr=1", "optimizer.eps");
  nearest("learning_rate=1", "optimizer.learning_rate");
  nearest("training.stage=1", "zero.stage");
  nearest("zero.stage.x=1", "zero.stage");
  nearest("model.presets=1", "model.preset");
  EXPECT_FAILURE(with({"training=3"}), Exit::usage, HasSubstr("is a section"));
  EXPECT_FAILURE(with({"model.config=3"}), Exit::usage, HasSubstr("is a section"));
  EXPECT_FAILURE(with({"training.seed"}), Exit::usage, HasSubstr("KEY=VALUE"));
  EXPECT_FAILURE(with({"=3"}), Exit::usage, HasSubstr("KEY=VALUE"));
  EXPECT_FAILURE(with({std::string(100000, 'k') + "=3"}), Exit::usage, HasSubstr("unknown key"));
}

TEST(RecipeTest, WrongValuesNameKeyValueAndWhatIsAllowed) {
  const auto refused = [](const std::string& key, const std::string& value, const std::string& allowed) {
    EXPECT_FAILURE(with({key + "=" + value}), Exit::usage,
                   AllOf(HasSubstr(key + " = "), HasSubstr(value), HasSubstr("allowed is"), HasSubstr(allowed)));
  };
  refused("training.precision", "fp8", R"("fp32", "bf16" or "fp16")");
  refused("training.precision", "16", "\"bf16\"");
  refused("training.max_steps", "-1", "an integer from 0");
  refused("training.max_steps", "10.5", "an integer from 0");
  refused("training.max_steps", "ten", "an integer");
  refused("training.micro_batch_size", "0", "from 1");
  refused("training.micro_batch_size", "automatic", R"("auto" or an integer from 1 to 1048576)");
  refused("training.micro_batch_size", "true", "from 1");
  refused("training.seed", "2024-01-01", "an integer");
  refused("training.recompute", "[1, 1]", "different block numbers");
  refused("training.recompute", "all", "\"sqrt\"");
  refused("training.max_grad_norm", "-0.5", "a number from 0");
  refused("training.max_grad_norm", "nan", "a number from 0");
  refused("optimizer.learning_rate", "inf", "a number");
  refused("optimizer.betas", "[0.9, 1]", "two numbers from 0 to below 1");
  refused("optimizer.betas", "[0.9]", "two numbers");
  refused("optimizer.betas", "0.9", "two numbers");
  refused("scheduler.min_lr_ratio", "1.1", "from 0 to 1");
  refused("zero.stage", "4", "from 0 to 3");
  refused("memory.device", "2 gibi", "2GiB");
  refused("memory.device", "0", "2GiB");
  refused("memory.device", "-1GiB", "2GiB");
  refused("memory.device", "99999999TiB", "2GiB");
  refused("data.train", "[1]", "a path or glob");
  refused("data.order", "random", "\"sequential\"");
  refused("device.threads", "0", "from 1");
  refused("fp16.initial_scale", "0", "above 0");
  refused("model.preset", "gpt5", "\"gpt2-124m\"");
  refused("checkpoint.keep", "0", "from 1");
  refused("report.jsonl", "3", "a path");
}

// A wrong type is shown as it was written: 5 would be right.
TEST(RecipeTest, AFloatIsShownAsOneAndNamesItsInteger) {
  const auto refused = [](const std::string& set, const std::string& shown, const std::string& end) {
    EXPECT_FAILURE(with({set}), Exit::usage, AllOf(HasSubstr(shown), EndsWith(end)));
  };
  refused("training.max_steps=5.0", "training.max_steps = 5.0 (--set): allowed is an integer from 0", "; write 5");
  refused("memory.device=2e9", "memory.device = 2000000000.0 (", "; write 2000000000");
  refused("training.max_steps=-5.0", "training.max_steps = -5.0 (", "an integer from 0");
  refused("training.max_steps=5.5", "training.max_steps = 5.5 (", "an integer from 0");
  refused("training.max_steps=1e300", "training.max_steps = 1e+300 (", "an integer from 0");
  refused("training.recompute=[1.0]", "training.recompute = [1.0] (", "block numbers");
  EXPECT_EQ(with({"model.config.rope_theta=5e5"}).model.config.at("rope_theta"), "500000.0");
}

// The system would end the path there, and a message its sentence.
TEST(RecipeTest, NoPathHasAZeroByte) {
  for (const char* key : {"data.train", "model.path", "memory.nvme", "report.jsonl", "checkpoint.resume"})
    EXPECT_FAILURE(with({std::string(key) + R"(="a\u0000b")"}), Exit::usage,
                   AllOf(HasSubstr(key), EndsWith(R"("a\u0000b": no path has a zero byte)")));
  EXPECT_FAILURE(with({R"(data.train=["a", "b\u0000"])"}), Exit::usage, HasSubstr(R"("b\u0000")"));
}

TEST(RecipeTest, ContradictionsNameBothKeys) {
  EXPECT_FAILURE(with({"model.path=x"}), Exit::usage, AllOf(HasSubstr("model.path"), HasSubstr("model.preset")));
  EXPECT_FAILURE(
      with({"training.gradient_accumulation_steps=2", "training.global_batch_size=8"}), Exit::usage,
      AllOf(HasSubstr("training.gradient_accumulation_steps = 2"), HasSubstr("training.global_batch_size = 8")));
  EXPECT_FAILURE(with({"model.init=pretrained"}), Exit::usage,
                 AllOf(HasSubstr("model.init"), HasSubstr("model.preset")));
  EXPECT_FAILURE(load_recipe(std::nullopt, Sets{}), Exit::usage,
                 AllOf(HasSubstr("model.path"), HasSubstr("model.preset")));
}

TEST(RecipeTest, OptimizersAndTheirMoments) {
  using device::Algorithm, device::MomentFormat;
  const auto of = [](const Sets& sets) { return with(sets).optimizer; };
  EXPECT_EQ(of({}).algorithm(), Algorithm::adamw);
  EXPECT_EQ(of({}).moment_format(), MomentFormat::fp32);
  EXPECT_EQ(of({"optimizer.name=adamw8bit"}).algorithm(), Algorithm::adamw);
  EXPECT_EQ(of({"optimizer.name=adamw8bit"}).moment_format(), MomentFormat::block8);
  EXPECT_EQ(of({"optimizer.name=adamw8bit", "optimizer.moments=8bit"}).moment_format(), MomentFormat::block8);
  EXPECT_EQ(of({"optimizer.name=sgd", "optimizer.moments=bf16"}).algorithm(), Algorithm::sgd);
  EXPECT_EQ(of({"optimizer.name=sgd", "optimizer.moments=bf16"}).moment_format(), MomentFormat::bf16);
  EXPECT_EQ(of({"optimizer.name=lion"}).algorithm(), Algorithm::lion);
  EXPECT_EQ(of({"optimizer.name=lion"}).betas, (std::array<double, 2>{0.9, 0.99}));
  EXPECT_EQ(of({"optimizer.name=lion", "optimizer.betas=[0.95, 0.98]"}).betas, (std::array<double, 2>{0.95, 0.98}));
  EXPECT_EQ(of({}).betas, (std::array<double, 2>{0.9, 0.95}));
  for (const char* moments : {"fp32", "bf16"})
    EXPECT_FAILURE(with({"optimizer.name=adamw8bit", fmt::format("optimizer.moments={}", moments)}), Exit::usage,
                   AllOf(HasSubstr("optimizer.name"), HasSubstr("optimizer.moments"), HasSubstr(moments)));
  EXPECT_FAILURE(with({"optimizer.momentum=1"}), Exit::usage, HasSubstr("below 1"));
  EXPECT_FAILURE(with({"optimizer.moments=4bit"}), Exit::usage, HasSubstr("\"8bit\""));
}

TEST(RecipeTest, CheckpointsNeedAFolder) {
  for (const char* set : {"checkpoint.every=1", "checkpoint.stop_after=3"}) {
    EXPECT_FAILURE(with({set}), Exit::usage, AllOf(HasSubstr("checkpoint."), HasSubstr("needs checkpoint.dir")));
    EXPECT_TRUE(with({set, "checkpoint.dir=/x"}).checkpoint.dir);
  }
  EXPECT_EQ(with({"checkpoint.every=0", "checkpoint.resume=none"}).checkpoint.resume, "none");
}

TEST(RecipeTest, WhatIsNotBuiltIsRefusedAfterItIsUnderstood) {
  EXPECT_FAILURE(with({"training.reduce_group=2"}), Exit::usage,
                 AllOf(HasSubstr("not built yet"), Not(HasSubstr("\n"))));
  for (const char* set :
       {"zero.optimizer=device", "device.kind=cpu", "training.reduce_group=1", "optimizer.name=lion"}) {
    EXPECT_EQ(tests::failure_of([&] { (void)with({set}); }).code(), Exit::done) << set;
  }
  // The last value counts, and a wrong value is a wrong value first.
  EXPECT_EQ(with({"zero.optimizer=host", "zero.optimizer=device"}).zero.optimizer, Tier::device);
  EXPECT_FAILURE(with({"zero.optimizer=disk"}), Exit::usage, HasSubstr("allowed is"));
}

TEST(RecipeTest, TiersNeedWhatTheyLieOn) {
  EXPECT_FAILURE(with({"zero.gradients=nvme"}), Exit::usage,
                 AllOf(HasSubstr("zero.gradients"), HasSubstr("memory.nvme")));
  EXPECT_EQ(with({"zero.gradients=nvme", "memory.nvme=/x"}).zero.gradients, Tier::nvme);
  EXPECT_FAILURE(with({"zero.activations=host"}), Exit::usage,
                 AllOf(HasSubstr("zero.activations"), HasSubstr("training.recompute")));
  EXPECT_EQ(with({"zero.activations=host", "training.recompute=sqrt"}).zero.activations, Tier::host);
}

TEST(RecipeTest, GlobalBatchSizeDividesOverTheRanks) {
  const Recipe r = with({"training.global_batch_size=24", "training.micro_batch_size=2"});
  EXPECT_EQ(r.accumulation_steps(1), 12);
  EXPECT_EQ(r.accumulation_steps(4), 3);
  EXPECT_FAILURE(r.accumulation_steps(5), Exit::usage,
                 AllOf(HasSubstr("training.global_batch_size = 24"), HasSubstr("5 ranks"),
                       HasSubstr("training.micro_batch_size = 2"), HasSubstr("multiple of 10")));
  EXPECT_EQ(with({"training.gradient_accumulation_steps=3"}).accumulation_steps(5), 3);
}

// The number must not depend on what is free where the run starts.
TEST(RecipeTest, AnAutomaticBatchNeedsItsMemory) {
  EXPECT_FAILURE(with({"training.micro_batch_size=auto"}), Exit::usage,
                 AllOf(HasSubstr("training.micro_batch_size = auto"), HasSubstr("needs memory.device")));
  const std::vector<std::string> sets = {"training.micro_batch_size=auto", "memory.device=1GiB",
                                         "training.recompute=block", "zero.activations=host"};
  EXPECT_FAILURE(with(sets), Exit::usage, HasSubstr("needs memory.host, too"));
  const Recipe r = with({sets[0], sets[1]});
  EXPECT_EQ(r.training.micro_batch_size, kAutomaticBatch);
  EXPECT_THAT(to_toml(r), HasSubstr("training.micro_batch_size = \"auto\"\n"));
  EXPECT_EQ(with({sets[0], sets[1], "training.micro_batch_size=4"}).training.micro_batch_size, 4);
}

// Again read from its text, a recipe is the same, whatever its keys are at and wherever the text lies.
TEST(RecipeTest, ARecipeAsAFile) {
  const tests::ScratchFolder folder;
  for (const Sets& sets :
       {Sets{"model.preset=tiny-gpt2"},
        Sets{"model.path=m", "data.train=[\"a.bin\", \"~/b/*.bin\"]", "data.validation=../v.bin", "memory.nvme=[\"x\"]",
             "optimizer.name=lion", "training.recompute=[1, 3]", "memory.device=2GiB", "zero.optimizer=nvme",
             "checkpoint.dir=c", "checkpoint.resume=c/step-1", "model.config.rope_scaling.factor=2.0",
             "model.config.x=null", "model.config.s=\"a\\\"b\"", "report.jsonl=r.jsonl", "device.threads=3"},
        Sets{"model.preset=tiny-llama", "optimizer.name=sgd", "training.max_grad_norm=0", "memory.io_direct=false",
             "training.global_batch_size=64", "fp16.initial_scale=1e5"}}) {
    const Recipe recipe = load_recipe(std::nullopt, sets);
    const Recipe again = load_recipe(folder.write("below/r.toml", to_toml(recipe)), {});
    const auto without_null = [](std::string text) {
      const auto at = text.find("model.config.x = null\n");
      return at == std::string::npos ? text : text.erase(at, std::strlen("model.config.x = null\n"));
    };
    EXPECT_EQ(without_null(to_text(again)),
              without_null(to_text(load_recipe(folder.write("n.toml", to_toml(again)), {}))));
    EXPECT_EQ(again.device.threads, recipe.device.threads);
    EXPECT_FALSE(again.report.jsonl.has_value());
    EXPECT_EQ(again.training.global_batch_size, recipe.training.global_batch_size);
    EXPECT_EQ(again.model.config.size(), recipe.model.config.size() - recipe.model.config.count("x"));
    for (const auto& [key, json] : again.model.config) EXPECT_EQ(json, recipe.model.config.at(key)) << key;
    ASSERT_EQ(again.data.train.size(), recipe.data.train.size());
    for (std::size_t i = 0; i < recipe.data.train.size(); ++i) {
      EXPECT_EQ(again.data.train[i].weight, recipe.data.train[i].weight);
      for (std::size_t k = 0; k < recipe.data.train[i].files.size(); ++k)
        EXPECT_EQ(again.data.train[i].files[k],
                  std::filesystem::absolute(recipe.data.train[i].files[k]).lexically_normal().string());
    }
  }
}

TEST(RecipeTest, AReportFolderNamesTheReportsThatHaveNoName) {
  const Recipe::Report report = with({"report.dir=run", "report.csv=my.csv"}).report;
  EXPECT_EQ(report.jsonl->filename(), "report.jsonl");
  EXPECT_EQ(report.jsonl->parent_path().filename(), "run");
  EXPECT_EQ(report.csv->filename(), "my.csv");
  EXPECT_EQ(report.tensorboard->filename(), "tensorboard");
  EXPECT_EQ(with({"report.dir=run", "report.trace_steps=3"}).report.trace_steps.size(), 1u) << "report.trace is there";
  EXPECT_FALSE(with({"report.csv=my.csv"}).report.jsonl.has_value());
}

TEST(RecipeTest, StepsToTrace) {
  const auto steps = [](const std::string& value) {
    return steps_text(with({"report.trace=t.json", "report.trace_steps=" + value}).report.trace_steps);
  };
  EXPECT_EQ(steps("3"), "3");
  EXPECT_EQ(steps("3-3"), "3");
  EXPECT_EQ(steps("3-5"), "\"3-5\"");
  EXPECT_EQ(steps("[9, \"3-5\", 6]"), "[\"3-5\", 6, 9]");
  for (const char* bad : {"0", "0-3", "5-3", "3-", "-3", "3-5-7", "3.5", "last", "true", "[3, 3]", "[\"3-5\", 5]",
                          "[[3]]", "99999999999999999999", "1-99999999999999999999"})
    EXPECT_FAILURE(with({"report.trace=t.json", std::string("report.trace_steps=") + bad}), Exit::usage,
                   AllOf(HasSubstr("report.trace_steps"), HasSubstr("a step from 1")));
  EXPECT_FAILURE(with({"report.trace_steps=3"}), Exit::usage, HasSubstr("needs report.trace"));
  EXPECT_TRUE(with({"report.trace=t.json", "report.trace_steps=3-8", "training.max_steps=8"}).notes.empty());
  EXPECT_THAT(with({"report.trace=t.json", "report.trace_steps=3-8", "training.max_steps=7"}).notes,
              ElementsAre(HasSubstr("training.max_steps is 7")));
}

TEST(RecipeTest, KeysOfAnotherOptimizerAreNoted) {
  EXPECT_TRUE(with({"optimizer.betas=[0.9,0.99]", "optimizer.eps=1e-6"}).notes.empty());
  EXPECT_TRUE(with({"optimizer.name=sgd", "optimizer.momentum=0.5"}).notes.empty());
  EXPECT_THAT(with({"optimizer.momentum=0.5"}).notes,
              ElementsAre("optimizer.momentum = 0.5 has no effect: optimizer.name is adamw"));
  EXPECT_EQ(with({"optimizer.name=sgd", "optimizer.betas=[0.9,0.99]", "optimizer.eps=1e-6"}).notes.size(), 2u);
}

TEST(RecipeTest, TrainingNeedsStepsAndData) {
  EXPECT_FAILURE(require_trainable(with({})), Exit::usage, HasSubstr("training.max_steps"));
  EXPECT_FAILURE(require_trainable(with({"training.max_steps=1"})), Exit::usage, HasSubstr("data.train"));
  require_trainable(with({"training.max_steps=0"}));
  require_trainable(with({"training.max_steps=1", "data.train=x"}));
}

TEST(RecipeTest, CanonicalTextSeesAllThatMattersToAllRanks) {
  const std::string text = to_text(with({}));
  EXPECT_EQ(text, to_text(with({"report.jsonl=x", "device.threads=3"})));
  EXPECT_EQ(text, to_text(with({"optimizer.learning_rate=0.0003", "memory.prefetch=2"})));
  for (const char* set : {"training.seed=1", "model.config.n_layer=2", "optimizer.eps=1e-9", "training.recompute=[0]",
                          "memory.device=1GiB", "comm.transport=messages", "data.train=x", "zero.stage=3"}) {
    EXPECT_NE(text, to_text(with({set}))) << set;
  }
}

TEST(RecipeTest, BrokenFilesAreRefusedWithTheirLine) {
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
  EXPECT_FAILURE(load_recipe(folder.path(), Sets{}), Exit::usage, HasSubstr("not a regular file"));
}

TEST(RecipeTest, TheDocumentationIsTheTable) {
  std::ifstream file(STRATA_SOURCE_DIR "/docs/recipe.md");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), recipe_reference())
      << "write it anew: strata keys > docs/recipe.md";
}

TEST(RecipeTest, Sizes) {
  EXPECT_EQ(parse_size("1B"), 1u);
  EXPECT_EQ(parse_size("2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("512MiB"), std::uint64_t{512} << 20);
  EXPECT_EQ(parse_size("1.5 GB"), 1'500'000'000u);
  for (const char* bad : {"", "GiB", "2", "2G", "2gib", "-2GiB", "0.1B", "1e400GiB", "nanB", "infB", "2GiBx"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace strata::runtime
