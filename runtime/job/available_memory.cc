#include "runtime/job/available_memory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/host/control_groups.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line) || line.empty() || line.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const std::uint64_t bytes = std::strtoull(line.c_str(), nullptr, 10);
  if (bytes >= std::uint64_t{1} << 60) return std::nullopt;  // cgroup v1 writes 2^63 for "none"
  return bytes;
}

struct Group {
  std::uint64_t limit, used;
};

// The part of a control group's use that the kernel can reclaim: file pages that were not used recently, in bytes.
std::uint64_t reclaimable(const fs::path& group) {
  std::ifstream stat(group / "memory.stat");
  std::string key;
  for (std::uint64_t bytes; stat >> key >> bytes;)
    if (key == "inactive_file" || key == "total_inactive_file") return bytes;
  return 0;
}

// The one that leaves the least memory, among this process's control group and its ancestors.
std::optional<Group> tightest_group(const fs::path& root) {
  std::optional<Group> least;
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto limit = number_in(group.folder / (group.unified ? "memory.max" : "memory.limit_in_bytes"));
    if (!limit) continue;
    const char* usage = group.unified ? "memory.current" : "memory.usage_in_bytes";
    const std::uint64_t counted = number_in(group.folder / usage).value_or(0);
    const std::uint64_t used = std::min(counted - std::min(counted, reclaimable(group.folder)), *limit);
    if (!least || *limit - used < least->limit - least->used) least = Group{*limit, used};
  }
  return least;
}

}  // namespace

std::optional<std::uint64_t> control_group_limit(const fs::path& root) {
  const auto group = tightest_group(root);
  return group ? std::optional(group->limit) : std::nullopt;
}

std::uint64_t available_memory(const fs::path& root) {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream meminfo(root / "proc/meminfo");
  std::string key, rest;
  for (std::uint64_t kib; meminfo >> key >> kib; std::getline(meminfo, rest))
    if (key == "MemAvailable:") available = kib * 1024;
  if (const auto group = tightest_group(root)) available = std::min(available, group->limit - group->used);
  return available;
}

}  // namespace strata::runtime
