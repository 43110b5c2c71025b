#include "device/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "device/cpu/lane_impl.h"
#include "device/lane.h"
#include "tests/failure.h"

extern "C" int fake_host_allocations();  // so far

namespace strata::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Device kGpu{Kind::cuda};

TEST(Memory, RefusesMoreThanIsFreeAndNamesBothSizes) {
  EXPECT_FAILURE(Arena((std::size_t{1} << 30) + 1, kGpu), Exit::does_not_fit,
                 AllOf(HasSubstr("1073741825 bytes"), HasSubstr("1073741824 bytes"), HasSubstr("Fake GPU"),
                       HasSubstr("memory.device")));
  EXPECT_EQ(Arena(4096, kGpu).size(), 4096u);
}

TEST(Memory, RefusesMemoryThatCannotBePinnedAndNamesTheLimit) {
  EXPECT_FAILURE((void)Arena::host(std::size_t{1} << 33, kGpu), Exit::does_not_fit,
                 AllOf(HasSubstr("8589934592 bytes"), HasSubstr("ulimit -l"), HasSubstr("memory.host")));
}

TEST(Memory, IsReadAndWrittenThroughTheDevice) {
  Arena arena(1000, kGpu);
  const std::vector<std::byte> in(10, std::byte{7});
  std::vector<std::byte> out(10);
  arena.write(990, in);
  arena.read(990, out);
  EXPECT_EQ(in, out);
}

// Pinning memory during a step could wait for a stream that waits for this thread.
TEST(Memory, AllocatesFlagsWhenALaneIsMade) {
  AbortToken abort;
  Lane twin("twin", 1, 0, abort, kGpu), host("host", 1, 0, abort);
  Event reached(kGpu);
  const int before = fake_host_allocations();
  std::atomic<bool> gate = false;
  cpu::submit(host, [&gate](cpu::Team&) {
    while (!gate) std::this_thread::yield();
  });
  for (int wait = 0; wait < 50; ++wait) {  // all refer to records that are not reached
    host.record(reached);
    twin.wait(reached);
  }
  gate = true;
  cpu::submit(twin, [](cpu::Team&) {});  // the host's turns have flags too
  twin.synchronize();
  host.synchronize();
  EXPECT_EQ(fake_host_allocations(), before);
}

}  // namespace
}  // namespace strata::device
