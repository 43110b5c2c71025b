#include "runtime/job/available_memory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || line.empty() || line.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const std::uint64_t bytes = std::strtoull(line.c_str(), nullptr, 10);
  if (bytes >= std::uint64_t{1} << 60) return std::nullopt;  // version 1 writes 2^63 for "none"
  return bytes;
}

struct Group {
  std::uint64_t limit, used;
};

// Bytes of a control group's use that the system gives back when they are wanted: file pages not used of late.
std::uint64_t reclaimable(const fs::path& group) {
  std::ifstream stat(group / "memory.stat");
  std::string key;
  for (std::uint64_t bytes; stat >> key >> bytes;)
    if (key == "inactive_file" || key == "total_inactive_file") return bytes;
  return 0;
}

// The group, of this process's and those above it, that leaves the least.
std::optional<Group> tightest_group() {
  std::optional<Group> least;
  const auto take = [&](const fs::path& limit_file, const fs::path& usage_file) {
    const auto limit = number_in(limit_file);
    if (!limit) return;
    const std::uint64_t counted = number_in(usage_file).value_or(0);
    const std::uint64_t used = std::min(counted - std::min(counted, reclaimable(limit_file.parent_path())), *limit);
    if (!least || *limit - used < least->limit - least->used) least = Group{*limit, used};
  };
  const auto take_up = [&](const fs::path& root, fs::path group, const char* limit, const char* usage) {
    for (group = group.relative_path();; group = group.parent_path()) {
      take(root / group / limit, root / group / usage);
      if (group.empty()) return;
    }
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) take_up("/sys/fs/cgroup", line.substr(3), "memory.max", "memory.current");
    if (const auto at = line.find(":memory:"); at != std::string::npos)
      take_up("/sys/fs/cgroup/memory", line.substr(at + 8), "memory.limit_in_bytes", "memory.usage_in_bytes");
  }
  return least;
}

}  // namespace

std::optional<std::uint64_t> control_group_limit() {
  const auto group = tightest_group();
  return group ? std::optional(group->limit) : std::nullopt;
}

std::uint64_t available_memory() {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key, rest;
  for (std::uint64_t kib; meminfo >> key >> kib; std::getline(meminfo, rest))
    if (key == "MemAvailable:") available = kib * 1024;
  if (const auto group = tightest_group()) available = std::min(available, group->limit - group->used);
  return available;
}

}  // namespace strata::runtime
