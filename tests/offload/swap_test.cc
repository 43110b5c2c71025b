#include "offload/swap.h"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <thread>

#include "tests/offload/io_modes.h"

namespace strata::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SwapInIoMode : public InIoMode {};
INSTANTIATE_TEST_SUITE_P(, SwapInIoMode, testing::ValuesIn(kIoModes), name_of_mode);

TEST_P(SwapInIoMode, ReadsWhatWasWritten) {
  constexpr std::size_t kBytes = 5 * kBlock + 3 * kPage;
  Swap swap(options_, kBytes, 0, abort_);
  EXPECT_THAT(swap.describe(), HasSubstr(to_string(GetParam())));
  device::Arena memory(2 * kBytes);
  swap.register_memory({memory.data(), memory.size()});
  EXPECT_THAT(swap.describe(), HasSubstr(to_string(GetParam())));
  const std::span from(memory.data(), kBytes), to(memory.at(kBytes), kBytes);
  fill(from, 1);
  swap.write(0, from);
  swap.read(0, to);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), kBytes), 0);
  EXPECT_EQ(swap.bytes_written(), kBytes);
  EXPECT_EQ(swap.bytes_read(), kBytes);
}

// Reads and writes in any sequence over 1 to 3 drives, with staging registered in part, behave like plain memory.
TEST_P(SwapInIoMode, BehavesLikeMemory) {
  const bool holds = rc::check([&] {
    const std::size_t drives = *rc::gen::inRange<std::size_t>(1, 4);
    const std::size_t pages = *rc::gen::inRange<std::size_t>(1, 1500);
    IoOptions options = options_;
    options.folders.assign(drives, folder_.path());
    options.queue_depth = *rc::gen::inRange(1, 33);
    options.verify = *rc::gen::arbitrary<bool>();
    Swap swap(options, pages * kPage, 0, abort_);
    device::Arena memory(pages * kPage), shadow(pages * kPage);
    swap.register_memory({memory.data(), *rc::gen::inRange<std::size_t>(0, pages + 1) * kPage});
    std::vector<bool> written(pages);
    for (std::uint64_t step = 0; step < 12; ++step) {
      const std::size_t first = *rc::gen::inRange<std::size_t>(0, pages);
      const std::size_t count = *rc::gen::inRange<std::size_t>(0, pages - first + 1);
      const std::size_t place = *rc::gen::inRange<std::size_t>(0, pages - count + 1);
      const std::span bytes(memory.at(place * kPage), count * kPage);
      if (*rc::gen::arbitrary<bool>()) {
        fill(bytes, step);
        swap.write(first * kPage, bytes);
        std::copy(bytes.begin(), bytes.end(), shadow.at(first * kPage));
        std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(first), count, true);
      } else {
        fill(bytes, 1000 + step);
        swap.read(first * kPage, bytes);
        for (std::size_t page = 0; page < count; ++page)
          if (written[first + page])
            RC_ASSERT(std::memcmp(bytes.data() + page * kPage, shadow.at((first + page) * kPage), kPage) == 0);
      }
    }
  });
  EXPECT_TRUE(holds);
}

// Two lanes at once, one that reads and one that writes, on two drives.
TEST_P(SwapInIoMode, CallsOfSeveralThreads) {
  constexpr std::size_t kBytes = 4 * kBlock;
  options_.folders.push_back(folder_.path());
  Swap swap(options_, 2 * kBytes, 0, abort_);
  device::Arena memory(3 * kBytes);
  const std::span kept(memory.data(), kBytes), read(memory.at(kBytes), kBytes), written(memory.at(2 * kBytes), kBytes);
  fill(kept, 1);
  swap.write(0, kept);
  std::thread writer([&] {
    for (std::uint64_t round = 0; round < 8; ++round) {
      fill(written, 2 + round);
      swap.write(kBytes, written);
    }
  });
  for (int round = 0; round < 8; ++round) {
    std::fill(read.begin(), read.end(), std::byte{0});
    swap.read(0, read);
    EXPECT_EQ(std::memcmp(read.data(), kept.data(), kBytes), 0);
  }
  writer.join();
  swap.read(kBytes, read);
  EXPECT_EQ(std::memcmp(read.data(), written.data(), kBytes), 0);
}

TEST(Swap, TakesTheBestIoModeAndLeavesNoFile) {
  const tests::ScratchFolder folder;
  AbortToken abort;
  IoOptions options;
  options.folders = {folder.path()};
  const Swap first(options, kBlock, 0, abort), second(options, kBlock, 1, abort);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(first.describe(), second.describe());
}

// Two runs in one folder do not share bytes.
TEST(Swap, RunsInOneFolderAreIndependent) {
  const tests::ScratchFolder folder;
  AbortToken abort;
  IoOptions options;
  options.folders = {folder.path()};
  Swap first(options, kBlock, 0, abort), second(options, kBlock, 0, abort);
  device::Arena memory(2 * kBlock);
  const std::span a(memory.data(), kBlock), b(memory.at(kBlock), kBlock);
  fill(a, 1);
  fill(b, 2);
  first.write(0, a);
  second.write(0, b);
  fill(b, 3);
  first.read(0, b);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), kBlock), 0);
}

TEST(Swap, RefusesPartialPages) {
  const tests::ScratchFolder folder;
  AbortToken abort;
  IoOptions options;
  options.folders = {folder.path()};
  Swap swap(options, kBlock, 0, abort);
  device::Arena memory(2 * kBlock);
  EXPECT_DEATH(swap.write(512, {memory.data(), kPage}), "offset % kPage");
  EXPECT_DEATH(swap.write(0, {memory.data(), 512}), "size % kPage");
  EXPECT_DEATH(swap.write(0, {memory.at(512), kPage}), "kPage");
  EXPECT_DEATH(swap.read(kPage, {memory.data(), kBlock}), "size <= bytes - range.offset");
}

}  // namespace
}  // namespace strata::offload
