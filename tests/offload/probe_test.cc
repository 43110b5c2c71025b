#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "offload/swap.h"
#include "tests/offload/faulty_submitter.h"
#include "tests/offload/io_modes.h"
#include "tests/offload/seccomp.h"

namespace strata::offload {
namespace {

using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;

class Probe : public testing::Test {
 protected:
  void SetUp() override {
    options_.folders = {folder_.path()};
    AbortToken abort;
    if (Swap(options_, kBlock, 0, abort).describe() != "io_uring, O_DIRECT, registered buffers")
      GTEST_SKIP() << "the top mode does not work here: " << Swap(options_, kBlock, 0, abort).describe();
  }
  // For a child process: prints to stderr how a run would read and write. Exits with 0 or the error's code.
  [[noreturn]] void describe_in_child() {
    const Error error = tests::failure_of([&] {
      AbortToken abort;
      Swap swap(options_, kBlock, 0, abort);
      device::Arena staging(64 * kBlock);
      swap.register_memory({staging.data(), staging.size()});
      swap.write(0, {staging.data(), kBlock});
      std::fprintf(stderr, "%s\n", swap.describe().c_str());
    });
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(static_cast<int>(error.code()));
  }
  tests::ScratchFolder folder_;
  IoOptions options_;
};

TEST_F(Probe, SeccompForbidsIoUring) {
  EXPECT_EXIT(
      {
        if (!forbid({SYS_io_uring_setup}, EPERM)) std::_Exit(77);
        describe_in_child();
      },
      ExitedWithCode(0), "^libaio, O_DIRECT; not used: io_uring: io_uring_setup: Operation not permitted .*seccomp");
  EXPECT_EXIT(
      {
        if (!forbid({SYS_io_uring_setup, SYS_io_setup}, ENOSYS)) std::_Exit(77);
        describe_in_child();
      },
      ExitedWithCode(0), "^threads, O_DIRECT; not used: io_uring: .*not implemented.*; not used: libaio: .*not impl");
  options_.engine = Engine::io_uring;
  EXPECT_EXIT(
      {
        if (!forbid({SYS_io_uring_setup}, EPERM)) std::_Exit(77);
        describe_in_child();
      },
      ExitedWithCode(static_cast<int>(Exit::usage)), "in the recipe: io_uring: .*Operation not permitted");
}

// The limit is enough for the probe, but not for the staging memory.
TEST_F(Probe, TooLittleLockedMemory) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  const auto limit_to = [](rlim_t bytes) {
    const rlimit limit{bytes, bytes};
    // The limit does not apply to root.
    return ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && (::geteuid() != 0 || ::setuid(65534) == 0);
  };
  for (const rlim_t limit : {rlim_t{64} << 10, rlim_t{4} << 20})
    EXPECT_EXIT(
        {
          if (!limit_to(limit)) std::_Exit(77);
          describe_in_child();
        },
        ExitedWithCode(0), "^io_uring, O_DIRECT, plain buffers; not used: registered buffers: .*locked memory is");
  options_.registered = true;
  EXPECT_EXIT(
      {
        if (!limit_to(rlim_t{4} << 20)) std::_Exit(77);
        describe_in_child();
      },
      ExitedWithCode(static_cast<int>(Exit::usage)), "cannot be registered as requested: .*locked memory is");
}

// A mode that returns errors or wrong bytes is not used, and the reason is kept.
TEST_F(Probe, RejectsAModeThatFails) {
  for (const Fault fault : {Fault::error, Fault::bits}) {
    FaultPlan plan;
    plan.fault = fault;
    plan.error = EINVAL;
    plan.times = 1 << 20;
    plan.arm(0);
    options_.wrap = [&plan](std::unique_ptr<Submitter> kernel, const IoMode& mode) -> std::unique_ptr<Submitter> {
      if (mode.engine != Engine::io_uring || !mode.direct) return kernel;
      return std::make_unique<FaultySubmitter>(std::move(kernel), plan);
    };
    AbortToken abort;
    const std::string text = Swap(options_, kBlock, 0, abort).describe();
    EXPECT_EQ(text.find("libaio, O_DIRECT; not used: io_uring, O_DIRECT, registered buffers: "), 0u) << text;
    EXPECT_THAT(text, AllOf(HasSubstr("not used: io_uring, O_DIRECT, plain buffers: "),
                            HasSubstr(fault == Fault::bits ? "the bytes read differ" : "Invalid argument")));
  }
}

TEST_F(Probe, ReportsThatNoModeWorks) {
  FaultPlan plan;
  plan.times = 1 << 20;
  plan.arm(0);
  AbortToken abort;
  EXPECT_FAILURE(Swap(spoiled_by(plan, options_), kBlock, 0, abort), Exit::failed,
                 AllOf(HasSubstr(folder_.path().string()), HasSubstr("threads, buffered"), HasSubstr("Input/output")));
}

TEST_F(Probe, OnlyIoUringHasRegisteredBuffers) {
  options_.engine = Engine::threads;
  options_.registered = true;
  AbortToken abort;
  EXPECT_FAILURE(Swap(options_, kBlock, 0, abort), Exit::usage, HasSubstr("threads has none"));
}

}  // namespace
}  // namespace strata::offload
