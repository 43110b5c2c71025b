#include "device/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/failure.h"

namespace strata::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Device kGpu{Kind::cuda};

TEST(Memory, MoreThanIsFreeIsRefusedWithBothNumbers) {
  EXPECT_FAILURE(Arena((std::size_t{1} << 30) + 1, kGpu), Exit::does_not_fit,
                 AllOf(HasSubstr("1073741825 bytes"), HasSubstr("1073741824 bytes"), HasSubstr("Fake GPU"),
                       HasSubstr("memory.device")));
  EXPECT_EQ(Arena(4096, kGpu).size(), 4096u);
}

TEST(Memory, WhatCannotBePinnedIsRefusedWithTheLimit) {
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

}  // namespace
}  // namespace strata::device
