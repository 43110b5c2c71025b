// Drives that fail during a run: each request of a short training fails in turn, between the engine and the kernel.
#include <gmock/gmock.h>

#include <limits>

#include "base/error.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/comm/run_threads.h"
#include "tests/dist/tiny_run.h"
#include "tests/offload/faulty_submitter.h"
#include "tests/runtime/training.h"

namespace strata::runtime {
namespace {

using offload::Fault;
using offload::FaultPlan;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

// Two steps of a model of one block with all of its state on NVMe. Ranks are threads.
class DriveFault : public testing::TestWithParam<int> {
 protected:
  struct Ended {
    int requests;  // to the drives, over all ranks, starting with the initial weights
    std::vector<std::string> losses;
    Error error{Exit::done, ""};
  };

  Ended train(Fault fault, int error, int request, bool verify) {
    FaultPlan plan;
    plan.fault = fault;
    plan.error = error;
    const Recipe recipe = load_recipe(
        std::nullopt,
        std::vector<std::string>{"model.preset=tiny-gpt2", "model.config.n_layer=1", "model.config.n_embd=32",
                                 "model.config.n_head=2", "model.config.vocab_size=97", "model.config.n_positions=16",
                                 "data.seq_len=16", "training.max_steps=2", "zero.stage=3", "zero.parameters=nvme",
                                 "zero.gradients=nvme", "zero.optimizer=nvme", "data.train=" + run_.file("tokens.bin"),
                                 "memory.nvme=" + run_.folder().path().string(), "memory.io_engine=threads",
                                 fmt::format("memory.verify={}", verify)});
    Ended ended{};
    comm::run_threads(GetParam(), [&](comm::World& world) {
      try {
        const Job job = make_job(open_workload(recipe), world.size(), capacity_of(recipe.memory, 1));
        Trainer trainer(job, world, 1, offload::spoiled_by(plan, recipe.io_options()));
        world.barrier();
        if (world.rank() == 0) plan.arm(request);
        world.barrier();
        trainer.load_initial_weights(1);
        while (!trainer.done()) {
          const StepReport report = trainer.step(false);
          if (world.rank() == 0) ended.losses.push_back(hex(report.loss));
        }
        trainer.executor().drain();
        world.barrier();  // a finished rank learns of one that failed
      } catch (const std::exception& failed) {
        world.report_failure(failed.what(), exit_code(failed));
        // The error that the program would print: the first failure.
        if (world.rank() == 0) ended.error = {world.failure().code, world.failure().cause};
      }
    });
    ended.requests = plan.counted;
    return ended;
  }

  // Every request of a single rank; for several ranks every third, to save time.
  static int stride() { return GetParam() == 1 ? 1 : 3; }

  tests::TinyRun run_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, DriveFault, testing::Values(1, 2));

constexpr int kNever = std::numeric_limits<int>::max() / 2;

// The run's error is the first failure, with rank, file, offset and the system's message.
TEST_P(DriveFault, AnyRequestMayFail) {
  const int requests = train(Fault::error, EIO, kNever, false).requests;
  ASSERT_GT(requests, 50);
  for (int request = 0; request < requests; request += stride()) {
    const int error = request % 2 ? EIO : ENOSPC;  // of a folder that fills up during the run
    const Ended ended = train(Fault::error, error, request, false);
    EXPECT_EQ(ended.error.code(), error == EIO ? Exit::failed : Exit::does_not_fit) << request;
    EXPECT_THAT(ended.error.what(),
                AllOf(ContainsRegex("(read|write) of [0-9]+ bytes at offset [0-9]+ of the swap file of rank [01] in "),
                      HasSubstr(run_.folder().path().string()),
                      HasSubstr(error == EIO ? "Input/output error" : "No space left on device")))
        << request;
  }
}

// Wrong bytes are detected before use, and the run reports where. If it never reads them, its losses are the same.
TEST_P(DriveFault, AnyRequestMayReturnWrongBytes) {
  const Ended whole = train(Fault::bits, 0, kNever, true);
  ASSERT_EQ(whole.error.code(), Exit::done);
  int found = 0;
  for (int request = 0; request < whole.requests; request += stride()) {
    const Ended ended = train(Fault::bits, 0, request, true);
    if (ended.error.code() == Exit::done) {
      EXPECT_EQ(ended.losses, whole.losses) << request;
      continue;
    }
    ++found;
    EXPECT_EQ(ended.error.code(), Exit::failed) << request;
    EXPECT_THAT(ended.error.what(),
                ContainsRegex("the bytes at offset [0-9]+ of the swap file of rank [01] in .* are not those that were "
                              "written"))
        << request;
  }
  EXPECT_GT(found, whole.requests / stride() / 4) << "reads among the requests";
}

}  // namespace
}  // namespace strata::runtime
