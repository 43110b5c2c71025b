#include "runtime/checkpoint/model_folder.h"

#include <gmock/gmock.h>

#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(ModelFolderTest, IsTheNewestWholeCheckpoint) {
  const SavedRun run;
  run.run(2, run.sets(2, {"zero.stage=3", "checkpoint.keep=9"}), 3, {1, 2, 3});
  const auto chosen = [&] { return ModelFolder(run.checkpoints()).path().filename().string(); };
  EXPECT_EQ(chosen(), "step-00000003");
  fs::resize_file(run.checkpoints() / "step-00000003/rank-00001-of-00002.safetensors", 100);
  EXPECT_EQ(chosen(), "step-00000002");
  fs::remove(run.checkpoints() / "step-00000002/manifest.json");
  fs::create_directory(run.checkpoints() / "step-00000002/manifest.json");
  EXPECT_EQ(chosen(), "step-00000001");
  fs::remove(run.checkpoints() / "step-00000001/rank-00000-of-00002.safetensors");
  EXPECT_FAILURE(ModelFolder(run.checkpoints()), Exit::corrupt, HasSubstr("none of its 3 checkpoints is whole"));
}

}  // namespace
}  // namespace strata::runtime
