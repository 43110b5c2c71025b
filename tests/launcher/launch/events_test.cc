#include "launcher/launch/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(Events, ALineEachBehindWhatIsThere) {
  const tests::ScratchFolder folder;
  Events(folder.path() / "logs").write({"start", {"n1", "n2"}, 4});
  Events again(folder.path() / "logs");
  again.write({"end", {"n1"}, 4, 1, "it \"broke\""});
  EXPECT_THAT(folder.read("logs/events.jsonl"),
              MatchesRegex(R"(\{"time":[0-9]+\.[0-9]{3},"event":"start","nodes":\["n1","n2"\],"ranks":4\})"
                           "\n"
                           R"(\{"time":[0-9]+\.[0-9]{3},"event":"end","nodes":\["n1"\],"ranks":4,"exit":1,)"
                           R"("cause":"it \\"broke\\""\})"
                           "\n"));
  Events(std::nullopt).write({"start", {}});
}

TEST(Events, AFullDiskIsSaidOnceAndEndsNothing) {
  const tests::ScratchFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / "events.jsonl");
  Events events(folder.path());
  testing::internal::CaptureStderr();
  events.write({"start", {"n1"}, 4});
  events.write({"end", {"n1"}, 4, 1});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("takes no more (No space left on device)"));
  EXPECT_EQ(said.find("takes no more"), said.rfind("takes no more")) << said;
}

TEST(Events, AFolderThatCannotBeIsNamed) {
  const tests::ScratchFolder folder;
  const auto file = folder.write("file", "x");
  EXPECT_FAILURE(Events(file / "logs"), Exit::usage, HasSubstr("--logs"));
}

}  // namespace
}  // namespace strata::launcher
