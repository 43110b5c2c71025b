#include "base/host/host.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/utsname.h>

#include <cstring>
#include <string>

#include "tests/scratch_folder.h"

namespace strata {
namespace {

TEST(HostName, IsTheKernelsHostName) {
  utsname name{};
  ASSERT_EQ(::uname(&name), 0);
  EXPECT_EQ(host_name(), name.nodename);
}

sockaddr_in first_of(const AddressLookup& found) {
  sockaddr_in out{};
  if (found.addresses && found.addresses->ai_addrlen == sizeof out)
    std::memcpy(&out, found.addresses->ai_addr, sizeof out);
  return out;
}

TEST(LookUp, FindsStreamAddresses) {
  const AddressLookup found = look_up("127.0.0.2", 4711);
  ASSERT_TRUE(found.addresses);
  EXPECT_EQ(found.why, "");
  EXPECT_EQ(found.addresses->ai_socktype, SOCK_STREAM);
  EXPECT_EQ(first_of(found).sin_family, AF_INET);
  EXPECT_EQ(ntohs(first_of(found).sin_port), 4711);
  EXPECT_EQ(ntohl(first_of(found).sin_addr.s_addr), 0x7f000002u);
  EXPECT_EQ(first_of(look_up("127.0.0.2")).sin_port, 0);
}

// With this flag no resolver is asked, so a name is not an address.
TEST(LookUp, GivesTheReasonIfThereIsNoAddress) {
  const AddressLookup found = look_up("localhost", 80, AI_NUMERICHOST);
  EXPECT_FALSE(found.addresses);
  EXPECT_EQ(found.why, gai_strerror(EAI_NONAME));
}

TEST(OwnProgram, IsTheRunningExecutable) {
  ASSERT_TRUE(std::filesystem::exists(own_program()));
  EXPECT_TRUE(std::filesystem::equivalent(own_program(), "/proc/self/exe"));
}

TEST(MemoryInfo, IsAFigureInBytes) {
  const tests::ScratchFolder root;
  EXPECT_EQ(memory_info("MemTotal", root.path()), std::nullopt) << "there is no /proc/meminfo";
  root.write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    800 kB\nHugePages_Total:       3\n");
  EXPECT_EQ(memory_info("MemTotal", root.path()), 1000u * 1024);
  EXPECT_EQ(memory_info("MemAvailable", root.path()), 800u * 1024);
  EXPECT_EQ(memory_info("HugePages_Total", root.path()), 3u) << "a number of pages";
  EXPECT_EQ(memory_info("Mem", root.path()), std::nullopt);
}

// A folder with the files of a system's control groups.
class CpuQuota : public testing::Test {
 protected:
  void plant(const std::string& file, const std::string& text) { root_.write(file, text); }
  std::optional<double> found() const { return cpu_quota(root_.path()); }

 private:
  tests::ScratchFolder root_;
};

TEST_F(CpuQuota, IsAbsentWithoutControlGroups) {
  EXPECT_EQ(found(), std::nullopt);
  plant("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(CpuQuota, ReadsCgroupVersion2) {
  plant("proc/self/cgroup", "0::/\n");
  plant("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(found(), 1.5);
  plant("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(CpuQuota, ReadsCgroupVersion1) {
  plant("proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/docker/a\n3:cpuset:/\n");
  plant("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "200000\n");
  plant("sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(found(), 4);
  plant("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(found(), std::nullopt);
}

TEST_F(CpuQuota, IsTheLowestOfAllParentGroups) {
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

TEST_F(CpuQuota, IsTheLowerOfBothVersions) {
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
TEST_F(CpuQuota, ReadsTheGroupMountedInAContainer) {
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
