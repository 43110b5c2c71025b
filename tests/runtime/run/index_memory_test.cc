// The data that a run keeps is in planned memory, and is read from the files once, before the plan.
#include "runtime/run/index_memory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <xxhash.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/periodic_evaluation.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/runtime/training.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// Replaces the process's memory during its lifetime, and counts the bytes that sequences hold.
class Unplanned final : public std::pmr::memory_resource {
 public:
  Unplanned() : before_(std::pmr::set_default_resource(this)) {}
  ~Unplanned() override { std::pmr::set_default_resource(before_); }
  std::size_t held() const { return held_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    held_ += bytes;
    return before_->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    held_ -= bytes;
    before_->deallocate(p, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource* before_;
  std::size_t held_ = 0;
};

// Training and validation data with labels of each kind, for models of each objective.
class IndexMemoryTest : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  IndexMemoryTest() {
    folder_.mask_token = 2;
    folder_.special_tokens = {0, 1, 2};
    std::vector<std::uint64_t> lengths;
    // More than a page of labels: buffers of a plan are whole pages.
    for (std::uint64_t i = 0; i < 900; ++i) lengths.push_back(2 + i * i % 14);
    for (const char* name : {"t.bin", "v.bin"})
      for (const bool per_token : {false, true}) {
        const std::string file = per_token ? std::string("words-") + name : name;
        folder_.write(file, lengths);
        label(file, lengths, per_token);
      }
    folder_.folder().write("config.json", R"({"model_type":"bert","vocab_size":130,"hidden_size":32,
      "num_hidden_layers":1,"num_attention_heads":2,"intermediate_size":40,"max_position_embeddings":20,
      "type_vocab_size":2})");
  }
  std::string path(const std::string& name) const { return (folder_.folder().path() / name).string(); }
  Recipe recipe(const std::vector<std::string>& more) const {
    const bool words = std::ranges::find(more, "training.objective=token_classification") != more.end();
    std::vector<std::string> sets = {"model.path=" + folder_.folder().path().string(),
                                     "model.init=random",
                                     "data.train=" + path(words ? "words-t.bin" : "t.bin"),
                                     "data.validation=" + path(words ? "words-v.bin" : "v.bin"),
                                     "data.seq_len=16",
                                     "training.micro_batch_size=2",
                                     "training.max_steps=2"};
    sets.insert(sets.end(), more.begin(), more.end());
    return load_recipe(std::nullopt, sets);
  }
  void remove_data() const {
    for (const auto& entry : fs::directory_iterator(folder_.folder().path()))
      if (entry.path().filename() != "config.json") fs::remove(entry.path());
  }

 private:
  void label(const std::string& name, const std::vector<std::uint64_t>& lengths, bool per_token) const {
    std::string lines;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      std::string words;
      for (std::uint64_t w = 0; w < lengths[i]; ++w) words += w == 0 ? "\"a\"" : w % 3 == 0 ? ", null" : ", \"b\"";
      lines += per_token ? fmt::format("{{\"labels\": [{}]}}\n", words)
                         : fmt::format("{{\"label\": \"{}\"}}\n", i % 3 == 0 ? "a" : "b");
    }
    auto sidecar = *read_sidecar(path(name));
    sidecar.labels = TokenSidecar::Labels{lengths.size(),
                                          folder_.put(name + ".labels.jsonl", lines),
                                          per_token ? "token_classification" : "single_label_classification",
                                          {"a", "b"}};
    folder_.folder().write(name + ".json", to_json(sidecar));
  }
  tests::TokenFolder folder_{130};
};

// Opened files that disappear do not end the run, because they are not opened again.
TEST_P(IndexMemoryTest, ATrainingOpensItsDataOnceIntoPlannedMemory) {
  Workload resolved = open_workload(recipe(GetParam()));
  resolved.recipe.evaluation.every = 1;
  const Unplanned unplanned;
  OpenedData opened = resolve_workload(resolved, false);
  ASSERT_EQ(opened.train.size(), 1u);
  ASSERT_NE(opened.validation, nullptr);
  remove_data();
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(resolved, 1, capacity_of(resolved.recipe.memory, 1));
    Trainer trainer(job, world, 1, std::nullopt, std::move(opened));
    trainer.load_initial_weights(1);
    EXPECT_EQ(unplanned.held(), 0u) << "of train and validation";
    PeriodicEvaluation evaluation(job, world, trainer);
    const StepReport step = trainer.step(false);
    const auto report = evaluation.run([](auto, auto) { return true; });
    EXPECT_GT(step.labels, 0u);
    EXPECT_GT(report->tokens, 0u);
    EXPECT_EQ(unplanned.held(), 0u);
  });
}

// The results are the same if the run itself opens the data.
TEST_P(IndexMemoryTest, BitsDoNotDependOnWhenDataAreOpened) {
  std::vector<std::string> losses;
  for (const bool before : {true, false}) {
    Workload resolved = open_workload(recipe(GetParam()));
    resolved.recipe.evaluation.every = 1;
    OpenedData opened = resolve_workload(resolved, false);
    if (!before) opened = {};
    comm::run_threads(1, [&](comm::World& world) {
      const Job job = make_job(resolved, 1, capacity_of(resolved.recipe.memory, 1));
      Trainer trainer(job, world, 1, std::nullopt, std::move(opened));
      trainer.load_initial_weights(1);
      PeriodicEvaluation evaluation(job, world, trainer);
      std::string all;
      for (int i = 0; i < 2; ++i) all += hex(trainer.step(false).loss) + " ";
      losses.push_back(all + hex(evaluation.run([](auto, auto) { return true; })->loss));
    });
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_P(IndexMemoryTest, AnEvaluationOpensItsDataOnceIntoPlannedMemory) {
  Workload resolved = open_workload(recipe(GetParam()));
  const Unplanned unplanned;
  OpenedData opened = resolve_workload(resolved, true);
  EXPECT_TRUE(opened.train.empty());
  remove_data();
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(resolved, 1, capacity_of(resolved.recipe.memory, 1), Purpose::evaluate);
    Evaluator evaluator(job, world, 1, *first_weights(job, world, 1, {}), {}, {}, std::move(opened.validation));
    EXPECT_EQ(unplanned.held(), 0u);
    EXPECT_GT(evaluator.run([](auto, auto) { return true; })->labels, 0u);
  });
}

// The data are checked for later evaluations, but nothing of them is kept.
TEST_P(IndexMemoryTest, UnusedValidationDataAreOnlyChecked) {
  Workload resolved = open_workload(recipe(GetParam()));
  const Unplanned unplanned;
  OpenedData opened = resolve_workload(resolved, false);
  EXPECT_EQ(opened.validation, nullptr);
  EXPECT_EQ(resolved.data.validation_index_bytes, 0u);
  const std::string labels = resolved.recipe.data.validation[0] + ".labels.jsonl";
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(resolved, 1, capacity_of(resolved.recipe.memory, 1));
    {
      Trainer trainer(job, world, 1, std::nullopt, std::move(opened));
      EXPECT_EQ(unplanned.held(), 0u);
      EXPECT_EQ(trainer.take_validation(), nullptr);
    }
    fs::remove(labels);
    EXPECT_THROW(Trainer(job, world, 1, std::nullopt, resolve_workload(resolved, false)), Error);
  });
}

const std::vector<std::vector<std::string>> kObjectives = {
    {"training.objective=masked_lm", "data.packing=stream"},
    {"training.objective=masked_lm", "data.packing=documents"},
    {"training.objective=sequence_classification"},
    {"training.objective=token_classification"},
    {"training.objective=token_classification", "data.packing=stream"},
};
INSTANTIATE_TEST_SUITE_P(Objectives, IndexMemoryTest, testing::ValuesIn(kObjectives));

}  // namespace
}  // namespace strata::runtime
