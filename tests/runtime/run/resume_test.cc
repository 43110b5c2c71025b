// Any number of ranks, stage and precision-compatible placement loads any checkpoint and continues with the same bits.
#include "runtime/run/resume.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Shape {
  int ranks, stage;
};

std::vector<std::string> tail(const std::vector<std::string>& all, std::size_t from) {
  return {all.begin() + static_cast<std::ptrdiff_t>(from), all.end()};
}

class Resume : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Resume, testing::Values("fp32", "bf16", "fp16"));

// Each shape writes, and each shape reads: all later losses and the final weights are those of an uninterrupted run.
TEST_P(Resume, SameBitsOverRanksAndStages) {
  const SavedRun run;
  const std::string precision = std::string("training.precision=") + GetParam();
  const auto whole = run.run(1, run.sets(1, {precision, "checkpoint.resume=none"}), 6);
  const Shape shapes[] = {{1, 0}, {2, 3}, {4, 1}, {2, 0}, {4, 2}};
  for (std::size_t i = 0; i < std::size(shapes); ++i) {
    const Shape from = shapes[i];
    const auto stage = fmt::format("zero.stage={}", from.stage);
    const auto first = run.run(from.ranks, run.sets(from.ranks, {precision, stage, "checkpoint.resume=none"}), 3, {3});
    EXPECT_EQ(first.losses, std::vector(whole.losses.begin(), whole.losses.begin() + 3));
    for (const Shape to : {shapes[(i + 1) % std::size(shapes)], shapes[(i + 3) % std::size(shapes)]}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {} -> {}, {}", from.ranks, from.stage, to.ranks, to.stage));
      const auto rest = run.run(
          to.ranks, run.sets(to.ranks, {precision, fmt::format("zero.stage={}", to.stage), "memory.prefetch=0"}), 6);
      EXPECT_THAT(rest.resumed, testing::StartsWith("step-00000003"));
      EXPECT_EQ(rest.losses, tail(whole.losses, 3));
      EXPECT_EQ(rest.weights, whole.weights);
      EXPECT_EQ(rest.progress, whole.progress);
    }
  }
}

// State is written from each tier and read into each, even while updates stream through it.
TEST(ResumeTest, SameBitsOverTiers) {
  const SavedRun run;
  const auto whole = run.run(1, run.sets(1, {"checkpoint.resume=none"}), 6);
  const auto tier = [&](const std::string& name) -> std::vector<std::string> {
    if (name == "device") return {"zero.stage=1"};
    return {"zero.stage=3", "zero.optimizer=" + name, "zero.parameters=" + name,
            "memory.nvme=" + run.folder().path().string()};
  };
  for (const char* from : {"device", "host", "nvme"})
    for (const char* to : {"device", "host", "nvme"}) {
      SCOPED_TRACE(fmt::format("{} -> {}", from, to));
      auto first = tier(from);
      first.emplace_back("checkpoint.resume=none");
      run.run(2, run.sets(2, first), 3, {1, 2, 3});
      const auto rest = run.run(4, run.sets(4, tier(to)), 6, {4, 5});
      EXPECT_EQ(rest.losses, tail(whole.losses, 3));
      EXPECT_EQ(rest.weights, whole.weights);
    }
}

// Tests moments of any format and number, cut and joined at any boundary.
TEST(ResumeTest, OptimizersAndTheirMoments) {
  for (const char* optimizer : {"optimizer.name=adamw8bit", "optimizer.name=lion", "optimizer.moments=bf16"}) {
    SCOPED_TRACE(optimizer);
    const SavedRun run;
    const auto whole = run.run(1, run.sets(1, {optimizer, "checkpoint.resume=none"}), 6);
    const Shape shapes[] = {{4, 3}, {2, 1}, {1, 0}};
    for (const Shape from : shapes)
      for (const Shape to : shapes) {
        run.run(from.ranks,
                run.sets(from.ranks, {optimizer, fmt::format("zero.stage={}", from.stage), "checkpoint.resume=none"}),
                3, {3});
        const auto rest = run.run(to.ranks, run.sets(to.ranks, {optimizer, fmt::format("zero.stage={}", to.stage)}), 6);
        EXPECT_EQ(rest.losses, tail(whole.losses, 3));
        EXPECT_EQ(rest.weights, whole.weights);
      }
  }
}

// The loss scale has just changed, and Adam's t does not count skipped steps.
TEST(ResumeTest, LossScaleAndSkippedSteps) {
  const SavedRun run;
  const std::vector<std::string> more = {"training.precision=fp16", "fp16.initial_scale=1e9", "fp16.growth_interval=2"};
  auto fresh = more;
  fresh.emplace_back("checkpoint.resume=none");
  const auto whole = run.run(2, run.sets(2, fresh), 6);
  ASSERT_LT(whole.progress.updates, 6);
  for (const std::int64_t at : {1, 2, 3, 4, 5}) {
    run.run(2, run.sets(2, fresh), at, {at});
    const auto rest = run.run(1, run.sets(1, more), 6);
    EXPECT_EQ(rest.weights, whole.weights) << at;
    EXPECT_EQ(rest.progress, whole.progress) << at;
  }
}

// If W*G changes, the run continues at the next micro-batch: none is repeated or left out.
TEST(ResumeTest, AnotherBatchContinuesAtTheNextMicroBatch) {
  const SavedRun run;
  run.run(4, run.sets(4), 3, {3});
  const auto rest = run.run(2, run.sets(2, {"training.gradient_accumulation_steps=3"}), 5);
  EXPECT_EQ(rest.progress.next_micro_batch, 3u * 4 + 2 * 6);
  EXPECT_EQ(rest.progress.tokens, rest.progress.next_micro_batch * 16);
  // Twice the sequences in half the micro-batches. If their number is not whole, the run is refused.
  const auto half =
      run.run(2, run.sets(2, {"training.micro_batch_size=2", "training.gradient_accumulation_steps=1"}), 4);
  EXPECT_EQ(half.progress.next_micro_batch, 3u * 4 / 2 + 2);
  EXPECT_FAILURE(run.run(2, run.sets(2, {"training.micro_batch_size=5"}), 4), Exit::usage,
                 HasSubstr("set training.micro_batch_size = 1"));
}

// Masters are fp32 in every precision, and a loss scale starts from its initial value if there was none.
TEST(ResumeTest, AnotherPrecision) {
  const SavedRun run;
  run.run(2, run.sets(2, {"training.precision=bf16"}), 2, {2});
  const auto rest = run.run(1, run.sets(1, {"training.precision=fp16", "fp16.initial_scale=256"}), 3, {3});
  EXPECT_EQ(rest.resumed, "step-00000002");
  EXPECT_EQ(rest.progress.loss_scale, (LossScaler::State{256, 1}));
  EXPECT_EQ(run.run(4, run.sets(4, {"training.precision=fp32"}), 4).resumed, "step-00000003");
}

// A note names settings that may change but give other bits, with both values, and no others.
TEST(ResumeTest, ReportsOtherSettings) {
  const SavedRun run;
  run.run(2, run.sets(2, {"training.precision=fp32"}), 2, {2});
  const auto notes = [&](int ranks, const std::vector<std::string>& more) {
    auto all = more;
    if (std::ranges::none_of(all, [](const std::string& set) { return set.starts_with("training.precision"); }))
      all.emplace_back("training.precision=fp32");
    return run.run(ranks, run.sets(ranks, all), 3).notes;
  };
  EXPECT_THAT(notes(4, {"zero.stage=3", "memory.prefetch=0"}), IsEmpty());
  EXPECT_THAT(notes(1, {"training.precision=bf16"}),
              ElementsAre(AllOf(HasSubstr("training.precision was \"fp32\" and is \"bf16\":"), HasSubstr("bits"))));
  EXPECT_THAT(notes(1, {"training.gradient_accumulation_steps=8"}),
              ElementsAre(HasSubstr("the number of sequences per step was 4 and is 8:")));
  EXPECT_THAT(notes(1, {"training.micro_batch_size=2", "training.gradient_accumulation_steps=2"}),
              ElementsAre(HasSubstr("training.micro_batch_size was 1 and is 2:")));
  EXPECT_THAT(notes(1, {"optimizer.weight_decay=0", "model.config.resid_pdrop=0.25"}),
              ElementsAre(AllOf(HasSubstr("optimizer.weight_decay was 0.1 and is 0,"),
                                HasSubstr("model.config.resid_pdrop was 0.1 and is 0.25:"))));
}

// The contents of the files are compared, not their names.
TEST(ResumeTest, ReportsDataWithOtherContents) {
  const SavedRun run;
  run.run(1, run.sets(1), 2, {2});
  const std::filesystem::path tokens = run.folder().path() / "tokens.bin", others = run.folder().path() / "others.bin";
  const auto notes = [&](const std::filesystem::path& file) {
    return run.run(1, run.sets(1, {"data.train=" + file.string()}), 3).notes;
  };
  std::filesystem::copy(tokens, others);
  EXPECT_THAT(notes(others), testing::IsEmpty());
  const auto change = [](const std::filesystem::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-2, std::ios::end);
    stream.write("\1\0", 2);
  };
  change(others);
  EXPECT_THAT(notes(others), ElementsAre(AllOf(HasSubstr("data.train was"), HasSubstr("others.bin"))));
  change(tokens);
  EXPECT_THAT(notes(tokens), ElementsAre(AllOf(HasSubstr("the files of data.train = "), HasSubstr("tokens.bin"),
                                               HasSubstr("have different contents:"))));
}

// The same sequences in micro-batches of another size: what must divide is the number of sequences.
TEST(ResumeTest, AcceptsMicroBatchesOfAnotherSizeThatDivideEvenly) {
  const SavedRun run;
  run.run(2, run.sets(2, {"training.micro_batch_size=2", "training.gradient_accumulation_steps=1"}), 3, {3});
  const auto rest =
      run.run(1, run.sets(1, {"training.micro_batch_size=4", "training.gradient_accumulation_steps=1"}), 4);
  EXPECT_EQ(rest.resumed, "step-00000003");
  EXPECT_EQ(rest.progress.next_micro_batch, 3u * 2 * 2 / 4 + 1);
  EXPECT_FAILURE(run.run(1, run.sets(1, {"training.micro_batch_size=8"}), 4), Exit::usage,
                 AllOf(HasSubstr("after 6 micro-batches of 2 sequences"), HasSubstr("micro-batches of 8")));
}

// Keys that define the run must stay the same. All other keys may differ from the checkpoint's.
TEST(ResumeTest, RefusesToChangeFixedKeys) {
  const SavedRun run;
  run.run(2, run.sets(2), 2, {2});
  const auto path = run.checkpoints() / "step-00000002";
  const Recipe recipe = load_recipe(std::nullopt, run.sets(2));
  const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
  const Manifest written = read_manifest(path);
  for (const char* key : {"data.long", "data.order", "data.packing", "data.seq_len", "training.seed",
                          "training.reduce_group", "training.objective", "training.mlm_probability"}) {
    Manifest other = written;
    ASSERT_TRUE(other.recipe.contains(key)) << key;
    other.recipe[key] = "another";
    EXPECT_FAILURE((void)progress_under(other, path, job, ""), Exit::usage,
                   HasSubstr(fmt::format("step-00000002 was written with {} = another, but {} {}", key,
                                         key == std::string_view("data.packing") ? "this run has" : "the recipe says",
                                         written.recipe.at(key))));
  }
  Manifest mixed = written;
  mixed.recipe["data.train.weights"] = "[0.7, 0.3]";
  EXPECT_FAILURE(
      (void)progress_under(mixed, path, job, ""), Exit::usage,
      HasSubstr("written with the weights of data.train = [0.7, 0.3], but the recipe says none (one source): keep "
                "the value, give another checkpoint.dir, or start over from exported weights"));
  Manifest before = written;  // there was no such key
  before.recipe.erase("data.packing");
  before.recipe.erase("data.long");
  EXPECT_EQ(progress_under(before, path, job, "").next_micro_batch, written.progress.next_micro_batch);
  Recipe packed = recipe;
  packed.data.packing = Packing::documents;
  const Job of_documents = make_job(open_workload(packed), 2, capacity_of(recipe.memory, 1));
  EXPECT_FAILURE(
      (void)progress_under(before, path, of_documents, ""), Exit::usage,
      HasSubstr("written with data.packing = \"stream\", but this run has \"documents\" (auto is documents"));
  for (const char* key : {"optimizer.learning_rate", "training.max_steps", "zero.stage", "data.train"}) {
    Manifest other = written;
    other.recipe[key] = "another";
    EXPECT_EQ(progress_under(other, path, job, "").next_micro_batch, written.progress.next_micro_batch) << key;
  }
}

// Older presets stated the MLP's width, which a configuration may leave to the model's width.
TEST(ResumeTest, AnExplicitWidthEqualsTheDerivedOne) {
  const SavedRun run;
  run.run(2, run.sets(2), 2, {2});
  const auto path = run.checkpoints() / "step-00000002";
  const Recipe recipe = load_recipe(std::nullopt, run.sets(2));
  const Job job = make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1));
  Manifest written = read_manifest(path);
  const auto at = written.config.find("\"n_inner\":null");
  ASSERT_NE(at, std::string::npos) << written.config;
  const std::int64_t wide = 4 * static_cast<std::int64_t>(job.model->hidden);
  const auto with = [&](std::int64_t width) {
    Manifest other = written;
    other.config.replace(at, 14, fmt::format("\"n_inner\":{}", width));
    return other;
  };
  EXPECT_EQ(progress_under(with(wide), path, job, "").step, 2);
  EXPECT_FAILURE((void)progress_under(with(wide + 1), path, job, ""), Exit::usage,
                 HasSubstr("n_inner of its config is"));
}

TEST(ResumeTest, AnotherRunIsRefused) {
  const SavedRun run;
  run.run(2, run.sets(2), 2, {2});
  const auto refused = [&](const std::string& set, const auto& matcher) {
    SCOPED_TRACE(set);
    EXPECT_FAILURE(run.run(2, run.sets(2, {set}), 4), Exit::usage, AllOf(HasSubstr("step-00000002"), matcher));
  };
  refused("training.seed=1", HasSubstr("training.seed = 0"));
  refused("data.order=sequential", HasSubstr("data.order"));
  refused("data.seq_len=8", HasSubstr("data.seq_len"));
  refused("model.config.vocab_size=131", HasSubstr("vocab_size"));
  refused("model.config.n_layer=3", HasSubstr("n_layer"));
  refused("model.config.layer_norm_epsilon=1e-3", HasSubstr("layer_norm_epsilon"));
  refused("optimizer.moments=bf16", HasSubstr("optimizer.moments = \"fp32\", but the recipe says \"bf16\": keep"));
  refused("optimizer.name=adamw8bit", HasSubstr("optimizer.moments = \"fp32\", but the recipe says \"8bit\": keep"));
  refused("optimizer.name=lion", HasSubstr("optimizer.name = \"adamw\", but the recipe says \"lion\": keep"));
  EXPECT_THAT(run.run(2, run.sets(2, {"optimizer.learning_rate=1e-4", "training.max_steps=9"}), 4).resumed,
              "step-00000002");
}

// These are two names for one optimizer.
TEST(ResumeTest, AdamW8bitIsAdamWWith8BitMoments) {
  const SavedRun run;
  run.run(1, run.sets(1, {"optimizer.name=adamw8bit"}), 2, {2});
  EXPECT_EQ(run.run(1, run.sets(1, {"optimizer.moments=8bit"}), 3, {3}).resumed, "step-00000002");
  EXPECT_EQ(run.run(1, run.sets(1, {"optimizer.name=adamw8bit"}), 4).resumed, "step-00000003");
}

// 0 and 0.0 are one number, for dropouts, which are compared in a note, and for other values.
TEST(ResumeTest, NumbersOfTheConfigAreComparedAsNumbers) {
  const SavedRun run;
  run.run(1, run.sets(1, {"model.config.resid_pdrop=0.0"}), 2, {2});
  const std::vector<std::string> sets = run.sets(1, {"model.config.resid_pdrop=0"});
  EXPECT_THAT(run.run(1, sets, 3).notes, IsEmpty());
  const Recipe recipe = load_recipe(std::nullopt, sets);
  const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
  const auto path = run.checkpoints() / "step-00000002";
  const auto with_layers = [&](const char* layers) {
    Manifest other = read_manifest(path);
    const std::string key = "\"n_layer\":";
    const auto at = other.config.find(key + "2,");
    EXPECT_NE(at, std::string::npos) << other.config;
    other.config.replace(at + key.size(), 1, layers);
    return other;
  };
  EXPECT_EQ(progress_under(with_layers("2.0"), path, job, "").step, 2);
  EXPECT_FAILURE((void)progress_under(with_layers("2.5"), path, job, ""), Exit::usage,
                 HasSubstr("n_layer of its config is 2.5, but the recipe's model has 2"));
}

// The contents of the files of data.validation are compared, not their names; only older manifests have no hash.
TEST(ResumeTest, TheBestIsKnownOnlyOnTheSameValidationData) {
  const SavedRun run;
  const std::filesystem::path here = run.folder().path() / "v.bin", there = run.folder().path() / "moved.bin";
  std::filesystem::copy(run.folder().path() / "tokens.bin", here);
  std::filesystem::copy(here, there);
  const auto sets = [&](const std::filesystem::path& file) {
    return run.sets(1, {"data.validation=" + file.string(), "evaluation.every=1", "evaluation.max_sequences=2"});
  };
  std::string others;
  for (int i = 0; i < 200; ++i) others += {'\1', '\0'};
  const auto starts_over = ElementsAre(HasSubstr("evaluates differently from the one that it resumes"));
  run.run(1, sets(here), 2, {2});
  EXPECT_THAT(run.run(1, sets(there), 3).notes, IsEmpty());
  run.folder().write("moved.bin", others);
  EXPECT_THAT(run.run(1, sets(there), 3).notes, starts_over);
  run.folder().write("v.bin", others);
  EXPECT_THAT(run.run(1, sets(here), 3).notes, starts_over) << "under the same name";
  const std::filesystem::path checkpoint = run.checkpoints() / "step-00000002";
  Manifest older = read_manifest(checkpoint);
  older.validation_hash.clear();
  std::ofstream(checkpoint / kManifestName) << to_json(older);
  EXPECT_THAT(run.run(1, sets(here), 3).notes, IsEmpty());
  EXPECT_THAT(run.run(1, sets(there), 3).notes, starts_over);
}

TEST(Resume, ReportsAScheduleOfAnotherLength) {
  const SavedRun run;
  (void)run.run(1, run.sets(1), 3, {3});
  EXPECT_THAT(run.run(1, run.sets(1), 4).notes, testing::IsEmpty());
  EXPECT_THAT(
      run.run(1, run.sets(1, {"training.max_steps=60"}), 4).notes,
      testing::ElementsAre("training.max_steps was 6 and is 60: the learning rate goes from 0.0011 to 0.00198 in "
                           "step 4"));
  EXPECT_THAT(run.run(1, run.sets(1, {"scheduler.name=constant"}), 4).notes,
              testing::ElementsAre(testing::HasSubstr("scheduler.name was \"cosine\" and is \"constant\"")));
  // More steps at the rate at which the run ended are not a jump.
  (void)run.run(1, run.sets(1, {"training.max_steps=3", "checkpoint.resume=none", "scheduler.name=constant"}), 3, {3});
  EXPECT_THAT(run.run(1, run.sets(1, {"training.max_steps=4", "scheduler.name=constant"}), 4).notes,
              testing::IsEmpty());
}

}  // namespace
}  // namespace strata::runtime
