#pragma once
#include <fmt/format.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/writer.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/periodic_evaluation.h"
#include "runtime/run/resume.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {

// Runs that write checkpoints and resume from them: ranks are threads, and one folder holds tokens and checkpoints.
class SavedRun {
 public:
  SavedRun() {
    std::ofstream file(folder_.path() / "tokens.bin", std::ios::binary);
    for (std::uint32_t i = 0; i < 2000; ++i) {
      const auto token = static_cast<std::uint16_t>((i * i * 7 + i / 5) % 130);
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }

  const tests::ScratchFolder& folder() const { return folder_; }
  std::filesystem::path checkpoints() const { return folder_.path() / "checkpoints"; }

  // A small model of two blocks whose embedding does not divide evenly, four micro-batches a step.
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"model.preset=tiny-gpt2",
                                    "model.config.n_layer=2",
                                    "model.config.n_embd=48",
                                    "model.config.n_head=3",
                                    "model.config.vocab_size=130",
                                    "model.config.n_positions=24",
                                    "model.config.resid_pdrop=0.1",
                                    "data.train=" + (folder_.path() / "tokens.bin").string(),
                                    "data.seq_len=16",
                                    "training.max_steps=6",
                                    "optimizer.learning_rate=2e-3",
                                    fmt::format("training.gradient_accumulation_steps={}", 4 / ranks),
                                    "checkpoint.dir=" + checkpoints().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  struct Result {
    std::vector<std::string> losses;  // of the steps of this run, exact
    std::string weights;
    std::vector<std::string> notes;
    std::string resumed;  // the checkpoint's name; empty: from the start
    Progress progress;
    std::vector<std::string> evaluations;  // exact losses of the evaluations that the recipe requests
  };

  // Starts or resumes as the recipe says, up to `last` steps in all, with a checkpoint after each step in `save`.
  // Evaluates as the recipe says; with checkpoint.keep_best, saves each new best. before: called on rank 0 before each
  // checkpoint, when the previous one is durable.
  Result run(int ranks, const std::vector<std::string>& all_sets, std::int64_t last,
             const std::vector<std::int64_t>& save = {}, FileSystem* system = nullptr,
             const std::function<void(std::int64_t step)>& before = {}) const {
    const Recipe recipe = load_recipe(std::nullopt, all_sets);
    const auto posix = posix_file_system();
    Result result;
    comm::run_threads(ranks, [&](comm::World& world) {
      const Job job =
          make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1), Purpose::train, {}, world.rank());
      std::vector<std::string> notes;
      const auto note = [&](const std::string& text) { notes.push_back(text); };
      CheckpointFolder folder(*recipe.checkpoint.dir, recipe.checkpoint.keep, system ? *system : *posix, world, note);
      Trainer trainer(job, world, 1);
      const auto [resumed, damaged] = start_or_resume(trainer, job, world, 2, note);
      folder.pass_over(damaged);
      CheckpointWriter writer(job, world, trainer.executor(), folder, trainer.base(), trainer.data_hash(),
                              trainer.validation_hash());
      std::vector<std::string> losses, evaluations;
      std::optional<PeriodicEvaluation> evaluation;
      if (job.evaluation) evaluation.emplace(job, world, trainer);
      std::int64_t best = -1;  // the step that was saved as the best
      const auto evaluate = [&] {
        if (!evaluation || !evaluation->due()) return;
        const auto report = evaluation->run([](std::uint64_t, std::uint64_t) { return true; });
        evaluations.push_back(hex(report->loss));
        if (report->best && recipe.checkpoint.keep_best) writer.start(trainer.progress());
        best = report->best && recipe.checkpoint.keep_best ? report->step : -1;
      };
      evaluate();
      while (trainer.steps_done() < last && !(evaluation && evaluation->patience_exhausted())) {
        losses.push_back(hex(trainer.step(false).loss));
        evaluate();
        if (std::find(save.begin(), save.end(), trainer.steps_done()) == save.end() || best == trainer.steps_done())
          continue;
        if (before) {
          writer.finish();
          world.barrier();
          if (world.rank() == 0) before(trainer.steps_done());
          world.barrier();
        }
        writer.start(trainer.progress());
      }
      writer.finish();
      if (!evaluation) {
        EXPECT_EQ(memory_json(trainer.executor().measured_memory(), nullptr), memory_json(job.plan.memory, nullptr))
            << "with the staging of checkpoints";
      }
      const std::string weights = trainer.weights_hash();
      if (world.rank() == 0)
        result = {losses, weights, notes, resumed ? resumed->filename().string() : "", trainer.progress(), evaluations};
    });
    return result;
  }

 private:
  tests::ScratchFolder folder_;
};

}  // namespace strata::runtime
