#include "launcher/reply_generator.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/comm/run_threads.h"
#include "tests/runtime/saved_run.h"

namespace strata::launcher {
namespace {

// A dialogue that outgrows its plan is planned again, and still answered by the checkpoint's adapter.
TEST(ReplyGenerator, KeepsTheAdapterOfACheckpoint) {
  const runtime::SavedRun saved;
  (void)saved.run(1, saved.sets(1, {"adapter.kind=lora", "adapter.rank=4", "training.precision=fp32"}), 2, {2});
  GenerateOptions options;
  options.model = saved.checkpoints();
  options.max_new_tokens = 1;
  options.precision = "fp32";
  comm::run_threads(1, [&](comm::World& world) {
    const StopSignal stop;
    const runtime::ModelFolder folder(saved.checkpoints());
    ReplyGenerator generator(options, folder, world, 1);
    const auto parameters_with = [&](std::size_t prompt) {
      (void)generator.answer(std::vector<std::uint32_t>(prompt, 5), {}, nullptr, stop, [](std::uint32_t) {});
      EXPECT_GE(generator.job().recipe.data.seq_len, static_cast<std::int64_t>(prompt));
      return generator.job().model->parameters();
    };
    const std::size_t first = parameters_with(2);
    EXPECT_EQ(parameters_with(12), first);
    EXPECT_EQ(generator.job().adapter().lora.rank, 4);
  });
}

}  // namespace
}  // namespace strata::launcher
