// Folders that do not exist, are full, are in memory, or lack features.
#include "offload/swap_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tests/offload/io_modes.h"
#include "tests/offload/seccomp.h"

namespace strata::offload {
namespace {

using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;

// The exit code of a child that could not prepare its test, for example without the right to mount.
constexpr int kNoStage = 77;

// For a child process: mounts a file system on `folder` that only this process sees.
void mount_here(const char* type, const std::filesystem::path& folder, const char* options, unsigned long flags = 0) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("strata-test", folder.c_str(), type, flags, options) != 0)
    std::_Exit(kNoStage);
}

bool may_mount(const std::filesystem::path& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    mount_here("tmpfs", folder, "");
    std::_Exit(0);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

// Prints to stderr how f() ended, and exits with its code.
template <typename F>
[[noreturn]] void tell(F&& f) {
  const Error error = tests::failure_of(f);
  std::fprintf(stderr, "%s\n", error.what());
  std::_Exit(static_cast<int>(error.code()));
}

int code_of(Exit code) {
  return static_cast<int>(code);
}

class SwapFileTest : public testing::Test {
 protected:
  // Starts a small swap in the folder, as a run does, and prints its description to stderr.
  [[noreturn]] void start_in_child(std::uint64_t bytes, const IoOptions& extra = {}) {
    tell([&] {
      IoOptions options = extra;
      options.folders = {folder_.path()};
      AbortToken abort;
      Swap swap(options, bytes, 3, abort);
      device::Arena memory(2 * kBlock);
      fill({memory.data(), kBlock}, 1);
      swap.write(0, {memory.data(), kBlock});
      swap.read(0, {memory.at(kBlock), kBlock});
      if (std::memcmp(memory.data(), memory.at(kBlock), kBlock) != 0) fail(Exit::corrupt, "other bytes");
      std::fprintf(stderr, "%s\n", swap.describe().c_str());
    });
  }
  tests::ScratchFolder folder_;
};

TEST_F(SwapFileTest, ReservesItsBytesAndLeavesNoFile) {
  const SwapFile file(folder_.path(), 3 * kBlock, 0);
  struct stat status {};
  ASSERT_EQ(::fstat(file.descriptor(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), 3 * kBlock);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, 3 * kBlock);
  EXPECT_EQ(status.st_nlink, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SwapFileTest, ReportsAMissingFolder) {
  EXPECT_FAILURE(SwapFile(folder_.path() / "none", kBlock, 0), Exit::usage,
                 AllOf(HasSubstr((folder_.path() / "none").string()), HasSubstr("does not exist")));
  const auto file = folder_.write("file", "x");
  EXPECT_FAILURE(SwapFile(file, kBlock, 0), Exit::usage, AllOf(HasSubstr(file.string()), HasSubstr("not a folder")));
  EXPECT_FAILURE(SwapFile(file / "below", kBlock, 0), Exit::usage, HasSubstr("Not a directory"));
}

TEST_F(SwapFileTest, RefusesTooLittleSpaceAtOnce) {
  constexpr std::uint64_t kPebibyte = std::uint64_t{1} << 50;
  EXPECT_FAILURE(SwapFile(folder_.path(), kPebibyte, 5), Exit::does_not_fit,
                 AllOf(HasSubstr("rank 5"), HasSubstr(folder_.path().string()), HasSubstr("1125899906842624 bytes"),
                       HasSubstr("free there")));
}

TEST_F(SwapFileTest, ReportsAnUnwritableFolder) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0555), 0);
  EXPECT_EXIT(
      {
        // Root may write anywhere.
        if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) std::_Exit(kNoStage);
        start_in_child(kBlock);
      },
      ExitedWithCode(code_of(Exit::usage)), "cannot be written: Permission denied");
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
}

TEST_F(SwapFileTest, ReportsAReadOnlyFileSystem) {
  if (!may_mount(folder_.path())) GTEST_SKIP() << "this process may not mount file systems";
  EXPECT_EXIT(
      {
        mount_here("tmpfs", folder_.path(), "", MS_RDONLY);
        start_in_child(kBlock);
      },
      ExitedWithCode(code_of(Exit::usage)), "cannot be written: Read-only file system");
}

TEST_F(SwapFileTest, TmpfsWorksAndIsReported) {
  if (!may_mount(folder_.path())) GTEST_SKIP() << "this process may not mount file systems";
  EXPECT_EXIT(
      {
        mount_here("tmpfs", folder_.path(), "size=8m");
        start_in_child(4 * kBlock);
      },
      ExitedWithCode(0), "on tmpfs, which is memory");
  EXPECT_EXIT(
      {
        mount_here("tmpfs", folder_.path(), "size=8m");
        start_in_child(16 * kBlock);
      },
      ExitedWithCode(code_of(Exit::does_not_fit)), "rank 3 .* needs 16777216 bytes, and 8388608 are free there");
}

// ramfs counts no free bytes, has no fallocate and no direct I/O.
TEST_F(SwapFileTest, SupportsAMinimalFileSystem) {
  if (!may_mount(folder_.path())) GTEST_SKIP() << "this process may not mount file systems";
  EXPECT_EXIT(
      {
        mount_here("ramfs", folder_.path(), "");
        start_in_child(4 * kBlock);
      },
      ExitedWithCode(0),
      "buffered.*; not used: O_DIRECT: Invalid argument, of the file system ramfs.*could not be "
      "reserved .ramfs has no fallocate");
  IoOptions direct;
  direct.direct = true;
  EXPECT_EXIT(
      {
        mount_here("ramfs", folder_.path(), "");
        start_in_child(4 * kBlock, direct);
      },
      ExitedWithCode(code_of(Exit::usage)), "in the recipe: O_DIRECT: Invalid argument");
}

TEST_F(SwapFileTest, SupportsAFileSystemWithoutNamelessFiles) {
  EXPECT_EXIT(
      {
        if (!forbid_open(O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP)) std::_Exit(kNoStage);
        start_in_child(4 * kBlock);
      },
      ExitedWithCode(0), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SwapFileTest, ReportsAFileSystemThatFillsUpMeanwhile) {
  EXPECT_EXIT(
      {
        if (!forbid({SYS_fallocate}, ENOSPC)) std::_Exit(kNoStage);
        start_in_child(4 * kBlock);
      },
      ExitedWithCode(code_of(Exit::does_not_fit)), "needs 4194304 bytes, and [0-9]+ are free there");
}

TEST_F(SwapFileTest, NamesTheFileSystem) {
  EXPECT_EQ(file_system_of("/proc/self"), "proc");
  EXPECT_EQ(file_system_of("/dev/shm"), "tmpfs");
}

}  // namespace
}  // namespace strata::offload
