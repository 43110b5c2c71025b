#include "comm/shared_mapping.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/dist/comm_checks.h"

namespace strata::comm {
namespace {

// A child process that ends with f's result.
class Child {
 public:
  template <typename F>
  explicit Child(F f) : pid_(fork()) {
    if (pid_ == 0) _exit(f());
  }
  pid_t pid() const { return pid_; }
  int status() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

TEST(SharedMapping, IsSeenByAnotherProcess) {
  SharedMapping mine("strata-test", 1 << 20);
  mine.data()[12345] = std::byte{7};
  const auto address = mine.address();
  const Child child([&] {
    const auto theirs = SharedMapping::of(address);
    theirs.data()[5] = std::byte{9};
    return std::to_integer<int>(theirs.data()[12345]);
  });
  EXPECT_EQ(child.status(), 7);
  EXPECT_EQ(mine.data()[5], std::byte{9});
}

TEST(SharedMapping, RefusesMemoryThatWasNotAnnounced) {
  SharedMapping mine("strata-test", 4096);
  auto address = mine.address();
  address.name[0] = 'x';
  EXPECT_THROW(SharedMapping::of(address), Error);
  address = mine.address();
  mine.close_file();
  EXPECT_THROW(SharedMapping::of(address), Error);
}

TEST(SharedMapping, OnlyTouchedBytesAreResident) {
  SharedMapping mine("strata-test-resident", 1 << 20);
  EXPECT_EQ(resident_bytes("strata-test-resident"), 0u);
  for (std::size_t page = 0; page < 10; ++page) mine.data()[page * 4096] = std::byte{1};
  // The number is higher if the system has larger pages.
  EXPECT_GE(resident_bytes("strata-test-resident"), 40960u);
  EXPECT_EQ(resident_bytes("strata-test-other"), 0u);
}

TEST(SharedMapping, MovesAndUnmaps) {
  SharedMapping a("strata-test", 4096);
  std::byte* const data = a.data();
  SharedMapping b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): the moved-from state is documented
  b = SharedMapping();
  EXPECT_EQ(b.size(), 0u);
}

}  // namespace
}  // namespace strata::comm
