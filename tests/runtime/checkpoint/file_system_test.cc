#include "runtime/checkpoint/file_system.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <cerrno>

#include "tests/failure.h"
#include "tests/refusing_system.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// At fsync, a drive reports earlier writes that failed.
TEST(FileSystemTest, ReportsFsyncErrors) {
  const tests::ScratchFolder folder;
  const auto system = posix_file_system();
  const auto file = system->create(folder.path() / "file");
  file->write(0, std::as_bytes(std::span("text")));
  tests::with_failing({SYS_fsync, SYS_fdatasync}, EIO, [&] {
    const auto says = AllOf(HasSubstr("cannot be written to the disk"), HasSubstr("Input/output error"));
    EXPECT_FAILURE(file->sync(), Exit::failed, AllOf(says, HasSubstr("file")));
    EXPECT_FAILURE(system->sync_folder(folder.path()), Exit::failed, AllOf(says, HasSubstr(folder.path().string())));
  });
  file->sync();
  system->sync_folder(folder.path());
}

// Several ranks create a checkpoint's folder. None of them can have made a link in its place.
TEST(FileSystemTest, AcceptsAFolderOfAnotherRankButNoLink) {
  const tests::ScratchFolder folder, elsewhere;
  const auto system = posix_file_system();
  for (int ranks = 0; ranks < 2; ++ranks) system->make_folder(folder.path() / "made");
  std::filesystem::create_directory_symlink(elsewhere.path(), folder.path() / "link");
  EXPECT_FAILURE(system->make_folder(folder.path() / "link"), Exit::failed, HasSubstr("cannot be made a folder"));
}

// Some file systems cannot sync folders, and keep the order by themselves.
TEST(FileSystemTest, AcceptsAFolderThatCannotBeSynced) {
  const tests::ScratchFolder folder;
  const auto system = posix_file_system();
  for (const int error : {EINVAL, ENOTSUP})
    tests::with_failing({SYS_fsync}, error, [&] { EXPECT_NO_THROW(system->sync_folder(folder.path())); });
}

}  // namespace
}  // namespace strata::runtime
