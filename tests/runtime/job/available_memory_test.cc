#include <gtest/gtest.h>

#include <string>

#include "runtime/job/capacity.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

// A folder with the files of a system and its control groups.
class AvailableMemory : public testing::Test {
 protected:
  AvailableMemory() { plant("proc/meminfo", "MemTotal:   1000 kB\nMemAvailable:   800 kB\n"); }
  void plant(const std::string& file, const std::string& text) { root_.write(file, text); }
  void bound(const std::string& group, int limit, int used) {
    plant(group + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    plant(group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
  }
  std::optional<std::uint64_t> limit() const { return control_group_limit(root_.path()); }
  std::uint64_t available() const { return available_memory(root_.path()); }

 private:
  tests::ScratchFolder root_;
};

TEST_F(AvailableMemory, IsTheSystemsMemoryWithoutGroups) {
  EXPECT_EQ(limit(), std::nullopt);
  EXPECT_EQ(available(), 800u * 1024);
}

TEST_F(AvailableMemory, IsWhatTheTightestGroupOfVersion2Leaves) {
  plant("proc/self/cgroup", "0::/pods/one\n");
  plant("sys/fs/cgroup/pods/one/memory.max", "max\n");
  plant("sys/fs/cgroup/pods/memory.max", "300000\n");
  plant("sys/fs/cgroup/pods/memory.current", "200000\n");
  plant("sys/fs/cgroup/pods/memory.stat", "anon 150000\ninactive_file 50000\n");
  EXPECT_EQ(limit(), 300000u);
  EXPECT_EQ(available(), 150000u);
}

// Inside a container, the host's name of the group does not exist, because the container's own group is mounted.
TEST_F(AvailableMemory, ReadsVersion1GroupsInAContainer) {
  plant("proc/self/cgroup", "9:hugetlb:/\n8:memory:/docker/abc/inner/job\n");
  plant("proc/self/mountinfo", "33 30 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  bound("sys/fs/cgroup/memory", 500000, 100000);
  EXPECT_EQ(limit(), 500000u);
  EXPECT_EQ(available(), 400000u);
  bound("sys/fs/cgroup/memory/inner/job", 90000, 20000);
  EXPECT_EQ(limit(), 90000u);
  EXPECT_EQ(available(), 70000u);
  bound("sys/fs/cgroup/memory/inner", 60000, 50000);
  EXPECT_EQ(available(), 10000u);
}

// A controller may be mounted with others, under another name.
TEST_F(AvailableMemory, FindsAControllerMountedWithAnother) {
  plant("proc/self/cgroup", "8:hugetlb,memory:/a\n");
  plant("proc/self/mountinfo", "33 30 0:29 / /sys/fs/cgroup/hugetlb,memory rw - cgroup cgroup rw,hugetlb,memory\n");
  bound("sys/fs/cgroup/hugetlb,memory/a", 400000, 0);
  EXPECT_EQ(limit(), 400000u);
}

}  // namespace
}  // namespace strata::runtime
