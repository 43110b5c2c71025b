#include "base/files/atomic_file.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <cerrno>

#include "tests/failure.h"
#include "tests/refusing_system.h"
#include "tests/scratch_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "out"; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }
  // Runs f() twice: with O_TMPFILE, so that the file has no name until it is committed, and without.
  template <typename F>
  void both_ways(F&& f) {
    f();
    fs::remove_all(path());
    std::exception_ptr thrown;
    std::thread([&] {
      if (!offload::forbid_open(O_TMPFILE & ~O_DIRECTORY, ENOTSUP))
        thrown = std::make_exception_ptr(std::runtime_error("seccomp"));
      else
        f();
    }).join();
    if (thrown) std::rethrow_exception(thrown);
  }
  tests::ScratchFolder folder_;
};

TEST_F(AtomicFileTest, AppearsCompleteOrNotAtAll) {
  both_ways([&] {
    {
      AtomicFile file(path());
      file.write("half");
      EXPECT_FALSE(fs::exists(path()));
    }
    EXPECT_EQ(entries(), 0u);
    AtomicFile file(path());
    file.write("who");
    file.write("le");
    file.commit();
    EXPECT_EQ(folder_.read("out"), "whole");
    EXPECT_EQ(entries(), 1u);
  });
}

// This holds even if others may write to the folder: the link is replaced, and its target stays.
TEST_F(AtomicFileTest, ReplacesALinkInsteadOfFollowingIt) {
  both_ways([&] {
    fs::create_symlink(folder_.write("precious", "mine"), path());
    AtomicFile file(path());
    file.write("own");
    file.commit();
    EXPECT_FALSE(fs::is_symlink(path()));
    EXPECT_EQ(folder_.read("out"), "own");
    EXPECT_EQ(folder_.read("precious"), "mine");
  });
}

// Meanwhile somebody has created a folder at the target. Only that folder remains.
TEST_F(AtomicFileTest, AFailedRenameLeavesNoFile) {
  both_ways([&] {
    AtomicFile file(path());
    file.write("text");
    fs::create_directory(path());
    EXPECT_FAILURE(file.commit(), Exit::failed, AllOf(HasSubstr("out cannot be put in place"), HasSubstr("directory")));
    EXPECT_TRUE(fs::is_directory(path()));
    EXPECT_EQ(entries(), 1u);
  });
}

TEST_F(AtomicFileTest, AnFsyncErrorPublishesNoFile) {
  folder_.write("out", "before");
  tests::with_failing({SYS_fsync, SYS_fdatasync}, EIO, [&] {
    AtomicFile file(path());
    file.write("after");
    EXPECT_FAILURE(file.commit(), Exit::failed,
                   AllOf(HasSubstr("out cannot be written to the disk"), HasSubstr("Input/output error")));
  });
  EXPECT_EQ(folder_.read("out"), "before");
  EXPECT_EQ(entries(), 1u);
}

}  // namespace
}  // namespace strata
