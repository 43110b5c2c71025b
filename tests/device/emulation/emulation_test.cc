#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "device/ops/embedding.h"
#include "tests/device/arrays.h"
#include "tests/device/emulation/probes.h"

namespace strata::device::emulation {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::in_lane;
using ::testing::Not;

TEST(Emulation, ShufflesBarriersAndSharedMemory) {
  std::vector<std::uint32_t> in(200 * 9), out(9);
  std::iota(in.begin(), in.end(), 1u);
  in_lane(1, [&](Lane& lane) { sum_blocks(lane, 9, in.data(), out.data()); });
  for (unsigned b = 0; b < 9; ++b) EXPECT_EQ(out[b], 200 * (200 * b) + 200 * 201 / 2) << "block " << b;
}

TEST(Emulation, RunsBlocksInRandomOrder) {
  std::vector<std::uint32_t> order(64), rising(64);
  std::iota(rising.begin(), rising.end(), 0u);
  unsigned count = 0;
  in_lane(1, [&](Lane& lane) { note_order(lane, 64, order.data(), &count); });
  EXPECT_THAT(order, Not(ElementsAreArray(rising)));
  EXPECT_THAT(order, ::testing::UnorderedElementsAreArray(rising));
}

TEST(Emulation, SharedMemoryIsFreshInEveryBlock) {
  std::vector<std::uint32_t> out(4 * 5);
  in_lane(1, [&](Lane& lane) { read_fresh_shared(lane, 5, out.data()); });
  EXPECT_THAT(out, ::testing::Each(0xffffffffu));
}

TEST(Emulation, DetectsAMissingBarrier) {
  std::vector<float> in(256, 1.0f), out(256);
  in_lane(1, [&](Lane& lane) { reverse_without_barrier(lane, 256, in.data(), out.data()); });
  EXPECT_THAT(out, ::testing::Contains(::testing::IsNan()));
}

TEST(Emulation, CopiesArriveAtOnceOrWhenAwaited) {
  std::vector<float> in(128), out(128), unawaited(128);
  std::iota(in.begin(), in.end(), 1.0f);
  in_lane(1, [&](Lane& lane) {
    copy_through_shared(lane, true, in.data(), out.data());
    copy_through_shared(lane, false, in.data(), unawaited.data());
  });
  EXPECT_THAT(out, ElementsAreArray(in));
  EXPECT_THAT(unawaited, ::testing::Contains(::testing::IsNan()));
  EXPECT_THAT(unawaited, ::testing::Contains(::testing::Gt(0.0f)));
}

// The error of the lane that ran f.
template <typename F>
std::string failure_of(F&& f) {
  try {
    in_lane(1, f);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no failure";
}

TEST(Emulation, WrongKernelsAreRefused) {
  const auto report = [](Wrong wrong) { return failure_of([&](Lane& lane) { misbehave(lane, wrong); }); };
  EXPECT_THAT(report(Wrong::divergent_barrier), HasSubstr("waits at the barrier probes.cu"));
  EXPECT_THAT(report(Wrong::left_before_barrier), HasSubstr("thread (40, 0, 0) has left the kernel while"));
  EXPECT_THAT(report(Wrong::lane_stays_away), HasSubstr("some of which never come"));
  EXPECT_THAT(report(Wrong::lane_reads_absent), HasSubstr("reads from lane 20"));
  EXPECT_THAT(report(Wrong::shared_overrun), HasSubstr("beyond the 256 bytes"));
  EXPECT_THAT(report(Wrong::trap), HasSubstr("thread (5, 0, 0) traps"));
}

// Kernels make the same checks as the CPU's operations when they run.
TEST(Emulation, IndicesOutsideTheTableTrap) {
  testing::Array table(DType::fp32, 4), out(DType::fp32, 2), workspace(DType::fp32, 64);
  const std::uint32_t indices[] = {1, 4};
  const TableRows all{0, 4, 4};
  EXPECT_THAT(failure_of([&](Lane& lane) { embedding_forward(lane, 2, 1, indices, all, table.view(), out.view()); }),
              HasSubstr("thread (1, 0, 0) traps"));
  EXPECT_THAT(failure_of([&](Lane& lane) {
                embedding_backward(lane, 2, 1, indices, all, out.view(), table.view(), workspace.view());
              }),
              HasSubstr("thread (1, 0, 0) traps"));
}

TEST(Emulation, ContinuesAfterAFailure) {
  EXPECT_NE(failure_of([](Lane& lane) { misbehave(lane, Wrong::lane_stays_away); }), "no failure");
  std::vector<std::uint32_t> in(200, 1), out(1);
  in_lane(1, [&](Lane& lane) { sum_blocks(lane, 1, in.data(), out.data()); });
  EXPECT_EQ(out[0], 200u);
}

TEST(Emulation, RefusesLaunchesThatNoGpuAccepts) {
  EXPECT_THAT(failure_of([](Lane& lane) { too_many_threads(lane); }), HasSubstr("no GPU has such a grid"));
  EXPECT_THAT(failure_of([](Lane& lane) { too_much_shared(lane); }), HasSubstr("invalid value"));
}

}  // namespace
}  // namespace strata::device::emulation
