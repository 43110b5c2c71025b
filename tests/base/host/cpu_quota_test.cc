#include <gtest/gtest.h>

#include <string>

#include "base/host/control_groups.h"
#include "tests/scratch_folder.h"

namespace strata {
namespace {

// A folder with the files of a system's control groups.
class CpuQuota : public testing::Test {
 protected:
  void plant(const std::string& file, const std::string& text) { root_.write(file, text); }
  std::optional<double> found() const { return cpu_quota(root_.path()); }

 private:
  tests::ScratchFolder root_;
};

TEST_F(CpuQuota, ASystemWithoutGroupsHasNone) {
  EXPECT_EQ(found(), std::nullopt);
  plant("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(CpuQuota, OfVersion2) {
  plant("proc/self/cgroup", "0::/\n");
  plant("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(found(), 1.5);
  plant("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(CpuQuota, OfVersion1) {
  plant("proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/docker/a\n3:cpuset:/\n");
  plant("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "200000\n");
  plant("sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(found(), 4);
  plant("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(CpuQuota, TheLeastOfAllAbove) {
  plant("proc/self/cgroup", "0::/pods/pod/container\n");
  plant("sys/fs/cgroup/pods/pod/container/cpu.max", "max 100000\n");
  plant("sys/fs/cgroup/pods/pod/cpu.max", "300000 100000\n");
  plant("sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  EXPECT_EQ(found(), 3);
  plant("sys/fs/cgroup/pods/pod/container/cpu.max", "25000 100000\n");
  EXPECT_EQ(found(), 0.25);
  plant("sys/fs/cgroup/elsewhere/cpu.max", "1000 100000\n");
  EXPECT_EQ(found(), 0.25) << "another process's group";
}

TEST_F(CpuQuota, TheLeastOfBothVersions) {
  plant("proc/self/cgroup", "4:cpuacct,cpu:/a\n1:name=systemd:/a\n0::/a\n");
  plant("proc/self/mountinfo",
        "30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
        "31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
        "32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "33 30 0:29 / /sys/fs/cgroup/cpuacct,cpu rw - cgroup cgroup rw,cpuacct,cpu\n");
  plant("sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_quota_us", "300000\n");
  plant("sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), 3);
  plant("sys/fs/cgroup/unified/cpu.max", "200000 100000\n");
  EXPECT_EQ(found(), 2);
}

// A container sees the groups from its own downwards, but its group's name is the host's.
TEST_F(CpuQuota, OfAContainerWhoseGroupIsMounted) {
  plant("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc/inner\n");
  plant("proc/self/mountinfo", "33 30 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
  plant("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  plant("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), 4);
  plant("sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "100000\n");
  plant("sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(), 1);
  plant("proc/self/cgroup", "4:cpu,cpuacct:/elsewhere\n");
  EXPECT_EQ(found(), 4);
}

}  // namespace
}  // namespace strata
