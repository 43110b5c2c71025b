#include "device/fault_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/lane.h"
#include "tests/device/arrays.h"

extern "C" void fake_fail(bool fails);

namespace strata::device {
namespace {

using testing::kDevice;

// The lane waits for an event that never occurs, without querying the driver.
TEST(FaultWatch, EndsWaitsForAFailedDevice) {
  AbortToken abort;
  {
    const FaultWatch watch(kDevice, 3, abort);
    Event there(kDevice);
    Lane host("host", 1, 0, abort), twin("twin", 1, 0, abort, kDevice);
    fake_fail(true);
    twin.record(there);
    host.wait(there);
    EXPECT_THROW(host.synchronize(), Aborted);
  }
  fake_fail(false);
  EXPECT_EQ(abort.failure().rank, 3);
  EXPECT_THAT(abort.failure().cause, ::testing::HasSubstr("work on GPU 0 failed"));
}

TEST(FaultWatch, IsSilentAboutAHealthyDevice) {
  AbortToken abort;
  {
    const FaultWatch watch(kDevice, 0, abort), none({}, 0, abort);
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  EXPECT_FALSE(abort.is_set());
}

}  // namespace
}  // namespace strata::device
