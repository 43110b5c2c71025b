#include "base/files/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "tests/scratch_folder.h"

namespace strata {
namespace {

TEST(FileLock, IsHeldByOneAndEndsWithItsFile) {
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

TEST(FileLock, KnowsWhetherItsFileIsStillThere) {
  const tests::ScratchFolder folder;
  const auto path = folder.write("lock", "");
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(lies_at(file, path));
  std::filesystem::rename(path, folder.path() / "other");
  EXPECT_FALSE(lies_at(file, path));
  std::filesystem::create_symlink(folder.path() / "other", path);
  EXPECT_FALSE(lies_at(file, path)) << "a link is not the file";
  EXPECT_FALSE(lies_at(Descriptor(), path));
}

}  // namespace
}  // namespace strata
