#include "base/host/host.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/words.h"

namespace strata {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

AddressLookup look_up(const std::string& host, std::optional<int> port, int flags) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const std::string service = port ? std::to_string(*port) : "";
  if (const int error = ::getaddrinfo(host.c_str(), port ? service.c_str() : nullptr, &hints, &list); error != 0)
    return {nullptr, ::gai_strerror(error)};
  return {AddressList(list), ""};
}

std::filesystem::path own_program() {
  constexpr std::string_view kReplaced = " (deleted)";  // Linux appends this to the path of a replaced program
  std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  if (path.ends_with(kReplaced)) path.resize(path.size() - kReplaced.size());
  return path;
}

namespace {

namespace fs = std::filesystem;

// A mount point of control groups, and the group that is mounted there. Inside a container, this group is often not the
// root group.
struct Mount {
  fs::path folder, group = "/";
};

// The mounts of cgroup version 2 (`unified`), or those of version 1 for the controller. If mountinfo is missing, they
// are the usual mount points.
std::vector<Mount> mounts(std::string_view controller, const fs::path& root, bool unified) {
  std::vector<Mount> out;
  std::ifstream table(root / "proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skipped, group, folder, type, options;
    if (!(before >> skipped >> skipped >> skipped >> group >> folder) || !(after >> type >> skipped >> options))
      continue;
    if (unified ? type == "cgroup2" : type == "cgroup" && has_word(options, controller, ','))
      out.push_back({folder, group});
  }
  if (!out.empty()) return out;
  const fs::path usual = "/sys/fs/cgroup";
  if (unified) return {{usual}, {usual / "unified"}};
  if (controller == "cpu") return {{usual / "cpu"}, {usual / "cpu,cpuacct"}};
  return {{usual / controller}};
}

// The path of `group` relative to the mounted group; empty if `group` is that group or lies outside it.
fs::path below(const Mount& mount, const fs::path& group) {
  fs::path path = group.lexically_relative(mount.group);
  if (path.empty() || *path.begin() == ".." || path == ".") return {};
  return path;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  std::vector<ControlGroup> out;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:GROUP
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && !has_word(controllers, controller, ',')) continue;
    for (const Mount& mount : mounts(controller, root, unified)) {
      const fs::path top = root / mount.folder.relative_path();
      for (fs::path group = below(mount, line.substr(second + 1));; group = group.parent_path()) {
        out.push_back({group.empty() ? top : top / group, unified});
        if (group.empty()) break;
      }
    }
  }
  return out;
}

namespace {

// The quota of this group itself, in cores. Version 2 has one file, "QUOTA PERIOD", with "max" for no quota. Version 1
// has two files, with -1 for no quota.
std::optional<double> quota_in(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.unified) {
    std::ifstream file(group.folder / "cpu.max");
    if (!(file >> quota >> period)) return std::nullopt;
  } else {
    std::ifstream quota_file(group.folder / "cpu.cfs_quota_us"), period_file(group.folder / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return std::nullopt;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  for (const ControlGroup& group : control_groups("cpu", root))
    if (const auto quota = quota_in(group)) least = std::min(least.value_or(*quota), *quota);
  return least;
}

int threads_within(double quota) {
  constexpr double kRounding = 0.01;  // 199999 of 100000 us are two cores
  return static_cast<int>(std::clamp(quota + kRounding, 1.0, 1e6));
}

int cores_within(int cores, const std::optional<double>& quota) {
  return quota ? std::min(cores, threads_within(*quota)) : cores;
}

std::optional<std::uint64_t> memory_info(std::string_view figure, const std::filesystem::path& root) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name, unit;
    std::uint64_t value = 0;
    if (!(fields >> name >> value) || name != std::string(figure) + ":") continue;
    return (fields >> unit) && unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

}  // namespace strata
