#include "runtime/checkpoint/reader.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/failure.h"
#include "tests/refusing_system.h"
#include "tests/runtime/made_checkpoint.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CheckpointReaderTest : public testing::Test {
 protected:
  Checkpoint made(std::uint64_t elements, const std::vector<models::ElementRange>& ranges) const {
    make_checkpoint(folder_.path() / "step-1", elements, ranges);
    return Checkpoint(folder_.path() / "step-1");
  }
  tests::ScratchFolder folder_;
};

TEST_F(CheckpointReaderTest, ReadsATensorAcrossFiles) {
  const std::uint64_t elements = 300'000;  // more than a block in one file
  const Checkpoint checkpoint = made(elements, {{294'912, elements}, {0, 256}, {256, 294'912}});
  std::vector<float> read(elements - 1), expected(elements - 1);
  checkpoint.read("master", "w", 1, read);
  std::iota(expected.begin(), expected.end(), 1.0f);
  EXPECT_EQ(read, expected);
}

// Each file and the manifest are valid by themselves, but together they do not form one tensor.
TEST_F(CheckpointReaderTest, RequiresEveryElementOnce) {
  const auto refused = [&](const std::vector<models::ElementRange>& ranges, const char* expected, const char* found) {
    EXPECT_FAILURE((void)made(1024, ranges), Exit::corrupt,
                   AllOf(HasSubstr("step-1"), HasSubstr("master of tensor w"), HasSubstr(expected), HasSubstr(found)));
  };
  refused({{0, 512}, {256, 1024}}, "expected element 512", "found 256");          // elements twice
  refused({{0, 512}, {0, 512}, {512, 1024}}, "expected element 512", "found 0");  // one file twice
  refused({{0, 1024}, {256, 512}}, "expected element 1024", "found 256");         // one range inside another
  refused({{0, 256}, {512, 1024}}, "expected element 256", "found 512");          // a hole
  refused({{256, 1024}}, "expected element 0", "found 256");                      // none at the beginning
  refused({{0, 768}}, "expected 1024 elements", "found 768");                     // none at the end
}

// Columns of both halves of the rows, as a rank holds them for a fused matrix, cut at any multiple of 256.
TEST_F(CheckpointReaderTest, ReadsATensorFromBoxes) {
  const std::vector<std::uint64_t> shape{1000, 1200};
  const Box left{{1000, 2, 600}, {0, 0, 0}, {1000, 2, 256}}, right{{1000, 2, 600}, {0, 0, 256}, {1000, 2, 344}};
  make_checkpoint(folder_.path() / "step-1", shape,
                  {{right, 256'000, 688'000}, {left, 0, 512'000}, {right, 0, 256'000}});
  const Checkpoint checkpoint(folder_.path() / "step-1");
  EXPECT_TRUE(checkpoint.manifest().boxes);
  EXPECT_EQ(checkpoint.extents("master", "w").size(), 3u);
  checkpoint.verify(2);
  for (const auto& [begin, end] : {std::pair{0, 1'200'000}, std::pair{599, 70'001}, std::pair{1'199'990, 1'200'000}}) {
    std::vector<float> read(static_cast<std::size_t>(end - begin)), expected(read.size());
    checkpoint.prefetch("master", "w", static_cast<std::uint64_t>(begin), read.size());
    checkpoint.read("master", "w", static_cast<std::uint64_t>(begin), read);
    std::iota(expected.begin(), expected.end(), static_cast<float>(begin));
    EXPECT_EQ(read, expected);
  }
}

TEST_F(CheckpointReaderTest, RequiresEveryElementOnceInBoxes) {
  const std::vector<std::uint64_t> shape{4, 1024};
  const auto refused = [&](const std::vector<BoxRange>& ranges, const char* expected, const char* found) {
    make_checkpoint(folder_.path() / "step-1", shape, ranges);
    EXPECT_FAILURE(Checkpoint(folder_.path() / "step-1"), Exit::corrupt,
                   AllOf(HasSubstr("master of tensor w"), HasSubstr(expected), HasSubstr(found)));
  };
  const Box whole = Box::full(shape), left{shape, {0, 0}, {4, 512}}, right{shape, {0, 512}, {4, 512}};
  const Box more{shape, {0, 500}, {4, 524}}, split{{4, 2, 512}, {0, 1, 0}, {4, 1, 512}};
  refused({{left, 0, 2048}, {more, 0, 2096}}, "each element once", "[0, 500] twice");
  refused({{whole, 0, 4096}, {right, 0, 2048}}, "each element once", "twice");
  refused({{left, 0, 2048}, {right, 256, 2048}}, "expected element 0", "found 256");
  refused({{left, 0, 2048}, {right, 0, 1024}}, "expected 4096 elements", "found 3072");
  refused({{left, 0, 2048}}, "expected 4096 elements", "found 2048");
  refused({{left, 0, 2048}, {split, 0, 2048}}, "the shape", "[4, 2, 512]");
}

// There are as many files as ranks, more than a process may have open.
TEST_F(CheckpointReaderTest, ReadsAThousandRanksWithFewOpenFiles) {
  constexpr std::uint64_t kRanks = 1000;
  std::vector<models::ElementRange> ranges;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) ranges.push_back({rank * 256, (rank + 1) * 256});
  make_checkpoint(folder_.path() / "step-1", kRanks * 256, ranges);
  const tests::FewFiles few(200);
  const Checkpoint checkpoint(folder_.path() / "step-1");
  checkpoint.verify(3);
  std::vector<float> read(kRanks * 256), expected(read.size());
  checkpoint.read("master", "w", 0, read);
  std::iota(expected.begin(), expected.end(), 0.0f);
  EXPECT_EQ(read, expected);
}

TEST_F(CheckpointReaderTest, VerifyReadsEveryBlock) {
  const Checkpoint checkpoint = made(600'000, {{0, 262'144}, {262'144, 600'000}});
  checkpoint.verify(2);
  std::fstream(folder_.path() / "step-1/shard-00001.safetensors", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(-1, std::ios::end)
      .put('\x7f');
  EXPECT_FAILURE(checkpoint.verify(2), Exit::corrupt, AllOf(HasSubstr("shard-00001"), HasSubstr("checksum")));
}

}  // namespace
}  // namespace strata::runtime
