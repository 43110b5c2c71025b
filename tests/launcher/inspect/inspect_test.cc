#include "launcher/inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "launcher/tokenize.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

std::string inspected(const std::filesystem::path& path) {
  std::ostringstream out;
  EXPECT_EQ(inspect(path, out), 0);
  return out.str();
}

TEST(InspectTest, TokenFiles) {
  const tests::ScratchFolder folder;
  const auto in = folder.write("in.txt", "Hi\nyou");
  tokenize({"byte", folder.path() / "t.bin", {in.string()}});
  EXPECT_THAT(
      inspected(folder.path() / "t.bin"),
      AllOf(HasSubstr("6 tokens of 2 bytes, no header"), HasSubstr("tokenizer byte, vocabulary of 256"),
            HasSubstr("smallest token 10, largest 121"), HasSubstr("72 105 10 121 111 117"), HasSubstr("Hi\\x0ayou")));
  std::filesystem::remove(folder.path() / "t.bin.json");
  EXPECT_THAT(inspected(folder.path() / "t.bin"), HasSubstr("no sidecar"));
}

TEST(InspectTest, SafetensorsWithStatistics) {
  const tests::ScratchFolder folder;
  const std::string header = R"({"a.w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"I64","shape":[],"data_offsets":[16,24]}})";
  const float values[] = {1, 3, std::numeric_limits<float>::quiet_NaN(), 5};
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  bytes += header + std::string(reinterpret_cast<const char*>(values), 16) + std::string(8, '\0');
  folder.write("model.safetensors", bytes);
  folder.write("unnamed", bytes);
  // Mean 3 and deviation sqrt(8/3) of the three finite values.
  const auto expected =
      AllOf(ContainsRegex("a\\.w +F32 +\\[2, 2\\] +3 +1\\.633 +1\n"), ContainsRegex("b +I64 +\\[\\] +- +- +-\n"),
            HasSubstr("2 tensors, 5 elements, 24 bytes"), HasSubstr("1 non-finite elements"));
  EXPECT_THAT(inspected(folder.path() / "model.safetensors"), expected);
  EXPECT_THAT(inspected(folder.path()), expected);
  EXPECT_THAT(inspected(folder.path() / "unnamed"), expected);
}

TEST(InspectTest, RefusesWhatIsCorruptOrMissing) {
  const tests::ScratchFolder folder;
  std::ostringstream out;
  EXPECT_FAILURE(inspect(folder.path() / "none", out), Exit::usage, HasSubstr("none"));
  EXPECT_FAILURE(inspect(folder.path(), out), Exit::usage, HasSubstr("model.safetensors"));
  EXPECT_FAILURE(inspect(folder.write("e.bin", ""), out), Exit::corrupt, HasSubstr("empty"));
  EXPECT_FAILURE(inspect(folder.write("x.safetensors", "12345678{}"), out), Exit::corrupt, HasSubstr("header"));
}

}  // namespace
}  // namespace strata::launcher
