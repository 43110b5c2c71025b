#include "base/files/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/atomic_file.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(OutputFile, IsNeverCreatedThroughALink) {
  const tests::ScratchFolder folder;
  const fs::path target = folder.write("target", "mine"), link = folder.path() / "link",
                 dangling = folder.path() / "to";
  fs::create_symlink(target, link);
  fs::create_symlink(folder.path() / "nothing", dangling);
  for (const fs::path& path : {link, dangling}) {
    EXPECT_LT(create_new_file(path).get(), 0);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_LT(open_own_file(path, O_WRONLY | O_APPEND).get(), 0);
    EXPECT_EQ(errno, ELOOP);
    EXPECT_FALSE(create_new_folder(path));
  }
  EXPECT_EQ(folder.read("target"), "mine");
  EXPECT_FALSE(fs::exists(folder.path() / "nothing"));
}

TEST(OutputFile, OpensTheUsersExistingFile) {
  const tests::ScratchFolder folder;
  const fs::path path = folder.path() / "log";
  for (const char* text : {"a", "b"}) EXPECT_EQ(::write(open_own_file(path, O_WRONLY | O_APPEND).get(), text, 1), 1);
  EXPECT_EQ(folder.read("log"), "ab");
  EXPECT_LT(create_new_file(path).get(), 0);
}

TEST(OutputFile, IsWrittenAsFarAsTheSystemAllows) {
  const tests::ScratchFolder folder;
  const std::string text(1 << 18, 'a');  // longer than a pipe holds
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(write_all(create_new_file(folder.path() / "log"), bytes), text.size());
  EXPECT_EQ(folder.read("log"), text);
  EXPECT_EQ(write_all(Descriptor(::open("/dev/full", O_WRONLY)), bytes), 0u);
  EXPECT_EQ(errno, ENOSPC);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Descriptor read(ends[0]), write(ends[1]);
  const std::size_t part = write_all(write, bytes);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GT(part, 0u);
  EXPECT_LT(part, text.size());
}

TEST(OutputFile, DoesNotWaitForAPipeWithoutAReader) {
  const tests::ScratchFolder folder;
  const fs::path path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_LT(open_own_file(path).get(), 0);
  EXPECT_EQ(errno, ENXIO);
}

TEST(OutputFile, ALinkToADeviceLeavesTheDeviceIntact) {
  const tests::ScratchFolder folder;
  const fs::path path = folder.path() / "log";
  fs::create_symlink("/dev/full", path);
  const Descriptor file = open_own_file(path, O_WRONLY | O_APPEND);
  ASSERT_GE(file.get(), 0);
  EXPECT_EQ(::write(file.get(), "a", 1), -1);
  EXPECT_EQ(errno, ENOSPC);
}

TEST(OutputFile, HasUnguessableTemporaryNames) {
  EXPECT_NE(name_next_to("a/b"), name_next_to("a/b"));
  EXPECT_EQ(name_next_to("a/b").parent_path(), "a");
}

TEST(OutputFile, RecognisesHandedOverFiles) {
  for (const char* path : {"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/null", "/dev/tty", "/dev/fd/63",
                           "/proc/self/fd/5", "/dev//fd/3", "/dev/x/../stdout"})
    EXPECT_TRUE(is_handed_over(path)) << path;
  for (const char* path : {"/dev/shm/a", "/dev/fd/../shm/a", "/dev/fd/", "/dev/zero", "/dev/sda", "stdin", "fd/3",
                           "/dev/fd/3x", "/proc/1/fd/3"})
    EXPECT_FALSE(is_handed_over(path)) << path;
}

TEST(FileLock, HasOneHolderAndEndsWithItsFile) {
  const tests::ScratchFolder folder;
  const auto path = folder.write("lock", "");
  const auto open = [&] { return Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC)); };
  Descriptor first = open();
  const Descriptor second = open();
  EXPECT_EQ(lock_file(first), 0);
  EXPECT_EQ(lock_file(second), EWOULDBLOCK);
  first.reset();
  EXPECT_EQ(lock_file(second), 0);
}

TEST(FileLock, KnowsWhetherItsFileStillExists) {
  const tests::ScratchFolder folder;
  const auto path = folder.write("lock", "");
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(lies_at(file, path));
  fs::rename(path, folder.path() / "other");
  EXPECT_FALSE(lies_at(file, path));
  fs::create_symlink(folder.path() / "other", path);
  EXPECT_FALSE(lies_at(file, path)) << "a link does not count as the file";
  EXPECT_FALSE(lies_at(Descriptor(), path));
}

TEST(RefusedWrite, LackOfSpaceExitsAsDoesNotFitWithAdvice) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    EXPECT_FAILURE(
        refused_write("f cannot be written", error), Exit::does_not_fit,
        testing::AllOf(StartsWith("f cannot be written: "), testing::ContainsRegex(": (free|raise) .*, or choose ")));
  }
}

TEST(RefusedWrite, OtherErrorsExitAsFailed) {
  EXPECT_FAILURE(refused_write("f cannot be written", EIO), Exit::failed, EndsWith("Input/output error (errno 5)"));
}

TEST(RefusedWrite, PermissionErrorsGiveAdvice) {
  EXPECT_FAILURE(refused_write("f cannot be written", EACCES), Exit::failed,
                 EndsWith("(errno 13): give this user the right to write there, or choose another folder"));
  EXPECT_FAILURE(refused_write("f cannot be written", EROFS), Exit::failed,
                 EndsWith("choose a folder in another file system"));
}

TEST(RefusedWrite, NamesAFolderThatCannotHoldFiles) {
  const tests::ScratchFolder folder;
  EXPECT_FAILURE(no_folder_for(folder.path() / "none/f"), Exit::usage, HasSubstr("there is no folder"));
  EXPECT_FAILURE(AtomicFile("/proc/x.bin"), Exit::usage,
                 HasSubstr("/proc/x.bin: no files can be created in /proc: give a name in another folder"));
}

}  // namespace

}  // namespace strata
