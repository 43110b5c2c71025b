// A kernel is loaded at its first call. That may wait for all of the GPU's work, and block every other call meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "device/cpu/lane_impl.h"
#include "device/cuda/launch.h"
#include "tests/device/arrays.h"

extern "C" void fake_load_kernel(cudaStream_t stream);

namespace strata::device {
namespace {

using testing::kDevice;

// The stream waits for a host lane, which first waits for the stream. A CUDA call in between would wait forever.
TEST(Loading, WaitsForAStreamThatWaitsForTheHost) {
  AbortToken abort;
  Event there(kDevice), back(kDevice);
  std::atomic<bool> gate = false;
  Lane host("host", 1, 0, abort), twin("twin", 1, 0, abort, kDevice);
  cpu::submit(host, [&gate](cpu::Team&) {
    while (!gate) std::this_thread::yield();
  });
  twin.record(there);
  host.wait(there);
  host.record(back);
  twin.wait(back);
  std::thread opening([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate = true;
  });
  fake_load_kernel(cuda::stream_of(twin));
  twin.synchronize();
  host.synchronize();
  opening.join();
}

TEST(Loading, WaitsForAStreamInWhichTheHostHasWork) {
  AbortToken abort;
  std::atomic<bool> ran = false;
  Lane twin("twin", 1, 0, abort, kDevice);
  cpu::submit(twin, [&ran](cpu::Team&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ran = true;
  });
  fake_load_kernel(cuda::stream_of(twin));
  EXPECT_TRUE(ran);
  twin.synchronize();
}

}  // namespace
}  // namespace strata::device
