// Every request of a short sequence fails in turn, in every mode.
#include "offload/drive.h"

#include <gmock/gmock.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/offload/faulty_submitter.h"
#include "tests/offload/io_modes.h"

namespace strata::offload {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr std::size_t kBytes = 3 * kBlock + 2 * kPage;
constexpr int kRequests = 8;  // 4 to write kBytes, 4 to read them

class DriveFault : public InIoMode {
 protected:
  void SetUp() override {
    InIoMode::SetUp();
    if (IsSkipped()) return;
    options_ = spoiled_by(plan_, options_);
    options_.folders.push_back(folder_.path());  // one of the two drives may fail
    fill(from_, 1);
  }
  // Writes and reads everything, and spoils request `number`.
  void run(int number, bool verify = false) {
    IoOptions options = options_;
    options.verify = verify;
    Swap swap(options, kBytes, 7, abort_);
    plan_.arm(number);
    std::fill(to_.begin(), to_.end(), std::byte{0});
    swap.write(0, from_);
    swap.read(0, to_);
  }
  bool came_back() const { return std::memcmp(from_.data(), to_.data(), kBytes) == 0; }

  FaultPlan plan_;
  device::Arena memory_{2 * kBytes};
  std::span<std::byte> from_{memory_.data(), kBytes}, to_{memory_.at(kBytes), kBytes};
};
INSTANTIATE_TEST_SUITE_P(, DriveFault, testing::ValuesIn(kIoModes), name_of_mode);

TEST_P(DriveFault, ErrorsNameFileOffsetAndReason) {
  for (const int error : {EIO, ENOSPC}) {
    plan_.error = error;
    for (int number = 0; number < kRequests; ++number) {
      const Error failure = tests::failure_of([&] { run(number); });
      EXPECT_EQ(failure.code(), error == EIO ? Exit::failed : Exit::does_not_fit) << number;
      EXPECT_THAT(failure.what(), AllOf(HasSubstr(folder_.path().string()), HasSubstr("rank 7"), HasSubstr("offset"),
                                        HasSubstr(number < kRequests / 2 ? "write" : "read"),
                                        HasSubstr(std::generic_category().message(error))));
    }
  }
  run(kRequests);  // all requests were spoiled once, and the next run is sound
  EXPECT_EQ(plan_.counted, kRequests);
  EXPECT_TRUE(came_back());
}

TEST_P(DriveFault, RetriesTemporaryErrors) {
  for (const int error : {EINTR, EAGAIN}) {
    plan_.error = error;
    for (int number = 0; number < kRequests; ++number) {
      run(number);
      EXPECT_EQ(plan_.counted, kRequests + 1);
      EXPECT_TRUE(came_back()) << number;
    }
  }
}

TEST_P(DriveFault, PersistentErrorsEndTheCall) {
  plan_.error = EAGAIN;
  plan_.times = 1 << 20;
  EXPECT_FAILURE(run(0), Exit::failed, HasSubstr(std::generic_category().message(EAGAIN)));
}

TEST_P(DriveFault, CompletesShortTransfers) {
  plan_.fault = Fault::half;
  for (int number = 0; number < kRequests; ++number) {
    run(number);
    EXPECT_GT(plan_.counted, kRequests);
    EXPECT_TRUE(came_back()) << number;
  }
}

TEST_P(DriveFault, ReportsAFileThatEndsEarly) {
  plan_.error = 0;
  EXPECT_FAILURE(run(kRequests - 1), Exit::failed, HasSubstr("ends early"));
}

TEST_P(DriveFault, ChecksumsDetectWrongBytes) {
  plan_.fault = Fault::bits;
  for (int number = kRequests / 2; number < kRequests; ++number) {
    EXPECT_FAILURE(run(number, true), Exit::failed,
                   AllOf(HasSubstr("not those that were written"), HasSubstr(folder_.path().string()),
                         HasSubstr("rank 7"), HasSubstr("offset")));
    run(number);  // without checksums it is not noticed: the spoiled byte is there
    EXPECT_FALSE(came_back());
  }
  run(kRequests, true);
  EXPECT_TRUE(came_back());
}

// Holds back all answers until it is opened, and records the order of requests.
class Gate final : public Submitter {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> writes;
    bool open = false;
  };
  Gate(std::unique_ptr<Submitter> kernel, State& state) : kernel_(std::move(kernel)), state_(state) {}
  int register_memory(std::span<std::byte> memory) override { return kernel_->register_memory(memory); }
  void submit(const Request& r) override {
    const std::lock_guard lock(state_.mutex);
    state_.writes.push_back(r.write);
    state_.changed.notify_all();
    kernel_->submit(r);
  }
  std::size_t wait(std::span<Completion> done) override {
    const std::size_t n = kernel_->wait(done);
    std::unique_lock lock(state_.mutex);
    if (n > 0) state_.changed.wait(lock, [&] { return state_.open; });
    return n;
  }
  void wake() override { kernel_->wake(); }

 private:
  std::unique_ptr<Submitter> kernel_;
  State& state_;
};

class DriveWithGate : public testing::Test {
 protected:
  DriveWithGate() {
    options_.queue_depth = 4;
    options_.wrap = [this](std::unique_ptr<Submitter> kernel, const IoMode&) {
      return std::make_unique<Gate>(std::move(kernel), state_);
    };
    drive_ = std::make_unique<Drive>(file_, IoMode{Engine::threads, false, false}, options_);
    calls_[0].shares = calls_[1].shares = 1;
  }
  ~DriveWithGate() override { open(); }
  void wait_for_requests(std::size_t count) {
    std::unique_lock lock(state_.mutex);
    state_.changed.wait(lock, [&] { return state_.writes.size() >= count; });
  }
  void open() {
    const std::lock_guard lock(state_.mutex);
    state_.open = true;
    state_.changed.notify_all();
  }

  const tests::ScratchFolder folder_;
  const SwapFile file_{folder_.path(), 64 * kBlock, 0};
  Gate::State state_;
  IoOptions options_;
  device::Arena memory_{64 * kBlock};
  Call calls_[2];
  Share shares_[2] = {{&calls_[0], false, memory_.data(), {0, 32 * kBlock, 0, 1}},
                      {&calls_[1], true, memory_.at(32 * kBlock), {32 * kBlock, 32 * kBlock, 0, 1}}};
  std::unique_ptr<Drive> drive_;
};

// If another call still has many requests left, a new one gets every second place.
TEST_F(DriveWithGate, CallsTakeTurns) {
  drive_->start(shares_[0]);
  wait_for_requests(4);
  drive_->start(shares_[1]);
  open();
  for (Call& call : calls_) ASSERT_TRUE(call.wait_for(std::chrono::seconds(60)));
  const auto writes_in = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
    return std::count(state_.writes.begin() + from, state_.writes.begin() + to, true);
  };
  EXPECT_EQ(state_.writes.size(), 64u);
  EXPECT_EQ(writes_in(0, 4), 0);
  EXPECT_NEAR(static_cast<double>(writes_in(4, 44)), 20, 4);  // one more round may have gone to the first call
}

// Reports which thread waits, and how often it has begun to wait.
class Watched final : public Submitter {
 public:
  struct State {
    std::atomic<pthread_t> thread{};
    std::atomic<int> waits{0};
    std::atomic<bool> broken{false};
  };
  Watched(std::unique_ptr<Submitter> kernel, State& state) : kernel_(std::move(kernel)), state_(state) {
    state_.thread = ::pthread_self();
  }
  int register_memory(std::span<std::byte> memory) override { return kernel_->register_memory(memory); }
  void submit(const Request& r) override { kernel_->submit(r); }
  std::size_t wait(std::span<Completion> done) override {
    ++state_.waits;
    try {
      return kernel_->wait(done);
    } catch (...) {
      state_.broken = true;
      throw;
    }
  }
  void wake() override { kernel_->wake(); }

 private:
  std::unique_ptr<Submitter> kernel_;
  State& state_;
};

// A signal whose handler does not restart system calls ends a drive thread's wait early, with EINTR. A pool's wait
// continues.
TEST_P(DriveFault, ASignalDoesNotInterruptAWait) {
  struct sigaction interrupt {
  }, before;
  interrupt.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &interrupt, &before), 0);
  Watched::State state;
  options_.folders = {folder_.path()};
  options_.wrap = [&state](std::unique_ptr<Submitter> kernel, const IoMode&) {
    return std::make_unique<Watched>(std::move(kernel), state);
  };
  Swap swap(options_, kBytes, 7, abort_);
  const bool ends = GetParam().engine != Engine::threads;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (state.waits == 0 && std::chrono::steady_clock::now() < deadline) {  // no signal begins the first wait
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int round = 0; round < 3; ++round) {
    const int waits = state.waits;
    do {  // the thread may not be in its wait yet
      ASSERT_EQ(::pthread_kill(state.thread, SIGUSR1), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } while (ends && state.waits == waits && !state.broken && std::chrono::steady_clock::now() < deadline);
    // A pool's thread may also begin its wait after the request of the probe that it has just completed.
    EXPECT_TRUE(!ends || state.waits > waits) << "a signal restarts the wait";
  }
  EXPECT_FALSE(state.broken);
  swap.write(0, from_);
  swap.read(0, to_);
  EXPECT_TRUE(came_back());
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

// Requests that an abandoned call left in the kernel complete later without changing memory.
TEST_F(DriveWithGate, AbandonedRequestsTouchNothing) {
  drive_->start(shares_[0]);
  wait_for_requests(4);
  drive_->stop(shares_[0]);
  drive_->abandon(shares_[0]);
  open();
  drive_->start(shares_[1]);
  ASSERT_TRUE(calls_[1].wait_for(std::chrono::seconds(60)));
  EXPECT_FALSE(calls_[1].failure().has_value());
  EXPECT_EQ(state_.writes.size(), 4u + 32u);
  EXPECT_EQ(shares_[0].in_flight, 4u);  // as it was when it was abandoned
  EXPECT_FALSE(calls_[0].wait_for(std::chrono::milliseconds(0)));
}

// A request never completes. The abort token ends the wait of its call, and of another call.
TEST_P(DriveFault, AbortEndsTheWaitForAHungRequest) {
  plan_.fault = Fault::never;
  for (const bool write : {true, false}) {
    AbortToken abort;
    Swap swap(options_, kBytes, 0, abort);
    plan_.arm(0);
    std::thread other([&] {
      while (plan_.counted < kRequests / 2) std::this_thread::yield();
      abort.set({0, "stop it", Exit::failed});
    });
    if (write)
      EXPECT_THROW(swap.write(0, from_), Aborted);
    else
      EXPECT_THROW(swap.read(0, to_), Aborted);
    EXPECT_THROW(swap.read(0, to_), Aborted);
    other.join();
  }
}

}  // namespace
}  // namespace strata::offload
