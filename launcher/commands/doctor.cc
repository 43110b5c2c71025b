#include <fmt/format.h>
#include <fmt/ostream.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "base/abort.h"
#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/host/host.h"
#include "base/quantity.h"
#include "device/cpu/isa.h"
#include "device/gpu.h"
#include "launcher/commands/commands.h"
#include "launcher/launch/ranks/child.h"
#include "launcher/rank/cores.h"
#include "launcher/screen/printable.h"
#include "offload/swap.h"
#include "runtime/job/capacity.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

class Report {
 public:
  explicit Report(std::ostream& out) : out_(out) {}
  void ok(const char* what, const std::string& text) { line("ok", what, text); }
  // Reports something that works but could be better.
  void note(const char* what, const std::string& text) { line("note", what, text); }
  // Reports something that does not work, and what to do.
  void fix(const char* what, const std::string& text) {
    line("fix", what, text);
    broken_ = true;
  }
  bool broken() const { return broken_; }

 private:
  void line(const char* mark, const char* what, const std::string& text) {
    fmt::print(out_, "{}\n", folded(fmt::format("{:<5} {:<14} ", mark, what) + text, 21));
  }
  std::ostream& out_;
  bool broken_ = false;
};

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

void processor(Report& report) {
  try {
    report.ok("processor", device::cpu::describe());
    report.ok("products", device::cpu::describe_libraries());
  } catch (const Error& error) {
    report.fix("processor", error.what());
  }
}

void cores(Report& report) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int usable = ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  const unsigned all = std::thread::hardware_concurrency();
  std::string text = counted(usable, "processor");
  if (usable > 0 && static_cast<unsigned>(usable) < all) text += fmt::format(" of {}", all);
  text += " usable by this process";
  if (const auto quota = cpu_quota()) {
    text += fmt::format(", but the cgroup's CPU quota is {:.4g}", *quota);
    if (threads_within(*quota) < usable) {
      report.note("cores", fmt::format("{}: unless device.threads is set, all ranks together start {}, or one each",
                                       text, counted(threads_within(*quota), "thread")));
      return;
    }
  }
  report.ok("cores", text);
}

void memory(Report& report) {
  const auto total = memory_info("MemTotal"), available = memory_info("MemAvailable"),
             limit = runtime::control_group_limit();
  if (!total || !available) {
    report.note("memory", "/proc/meminfo cannot be read: set memory.device in the recipe");
    return;
  }
  const std::string text = fmt::format("{} of {} available", bytes_text(*available), bytes_text(*total));
  if (limit && *limit < *total) {
    report.note("memory", fmt::format("{}, but this cgroup is limited to {}: the plan must fit into that", text,
                                      bytes_text(*limit)));
  } else {
    report.ok("memory", text + ", no cgroup limit below it");
  }
}

void huge_pages(Report& report) {
  const auto state = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!state) {
    report.note("huge pages", "this kernel has no transparent huge pages");
  } else if (state->find("[never]") != std::string::npos) {
    report.note("huge pages",
                "transparent huge pages are off: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  } else {
    report.ok("huge pages", "transparent: " + *state);
  }
}

void topology(Report& report) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0) {
    report.note("topology", "hwloc cannot read this machine's topology");
    if (topology) hwloc_topology_destroy(topology);
    return;
  }
  const auto count = [&](hwloc_obj_type_t type) { return std::max(0, hwloc_get_nbobjs_by_type(topology, type)); };
  std::string text = fmt::format(
      "{}, {}, {}, {}", counted(count(HWLOC_OBJ_PACKAGE), "package"), counted(count(HWLOC_OBJ_NUMANODE), "NUMA node"),
      counted(count(HWLOC_OBJ_CORE), "core"), counted(count(HWLOC_OBJ_PU), "hardware thread"));
  if (const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L3CACHE, 0); cache && cache->attr) {
    text += fmt::format(", {} x {:.0f} MiB of L3", count(HWLOC_OBJ_L3CACHE),
                        static_cast<double>(cache->attr->cache.size) / 0x1p20);
  }
  if (count(HWLOC_OBJ_NUMANODE) > 1) {
    report.note("topology", text + ": start one rank per NUMA node (mpirun --map-by numa --bind-to numa)");
  } else {
    report.ok("topology", text);
  }
  hwloc_topology_destroy(topology);
}

void mpi(Report& report) {
  const std::string found = find_program("mpirun");
  if (found.empty()) {
    report.note("mpi", "no mpirun in PATH: several ranks need Open MPI (apt-get install openmpi-bin)");
    return;
  }
  std::string text = fmt::format("{}: mpirun -n N strata train RECIPE.toml", found);
  if (::geteuid() == 0 && !std::getenv("OMPI_ALLOW_RUN_AS_ROOT")) {
    text += "; as root, add --allow-run-as-root (or OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)";
  }
  text += fmt::format("; for more than {} ranks, add --oversubscribe", std::thread::hardware_concurrency());
  report.ok("mpi", text);
}

void shared_memory(Report& report) {
  const Descriptor memory(::memfd_create("strata-doctor", MFD_CLOEXEC));
  if (memory.get() < 0) {
    report.note("shared memory", fmt::format("memfd_create: {}: ranks of a node exchange messages instead, which is "
                                             "slower (comm.transport = \"messages\")",
                                             std::strerror(errno)));
  } else {
    report.ok("shared memory", "memfd_create works");
  }
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) {
    report.note("/dev/shm", fmt::format("{}: Open MPI needs it for messages within a node", std::strerror(errno)));
    return;
  }
  const std::uint64_t available = std::uint64_t{status.f_bavail} * status.f_frsize;
  if (available < (std::uint64_t{64} << 20)) {
    report.note("/dev/shm",
                fmt::format("{} free: Open MPI needs about 64 MiB (docker run --shm-size=1g)", bytes_text(available)));
  } else {
    report.ok("/dev/shm", bytes_text(available) + " free");
  }
}

void gpu(Report& report) {
  device::Gpus found = device::find_gpus();
  if (!found.problem.empty()) {
    std::error_code ignored;
    const bool driver = !found.built && fs::exists("/proc/driver/nvidia/version", ignored);
    report.note("gpu", (driver ? "a driver is installed, but " : "") + found.problem);
    return;
  }
  for (device::Gpu& one : found.gpus) {
    if (one.problem.empty()) device::probe_gpu(one);
    const std::string text = fmt::format("{}: {}", one.device.ordinal, one.name);
    if (one.problem.empty())
      report.ok("gpu", fmt::format("{}, compute capability {}, {} of {} free", text, one.capability,
                                   bytes_text(one.available), bytes_text(one.memory)));
    else
      report.fix("gpu", fmt::format("{}: {}", text, one.problem));
  }
  report.ok("cuda", fmt::format("driver for CUDA {}, built with CUDA {}", found.driver, found.runtime));
  for (const device::GpuLibrary& library : found.libraries) {
    if (!library.found.empty())
      report.ok(library.name.c_str(), library.found);
    else if (library.required)
      report.fix(library.name.c_str(), library.problem);
    else
      report.note(library.name.c_str(), library.problem);
  }
}

// asked: the user named the folder; otherwise it is just the current folder.
void drive(Report& report, const fs::path& folder, bool asked) {
  const AbortToken abort;
  offload::IoOptions options;
  options.folders = {folder};
  try {
    const offload::Swap swap(options, offload::kBlock, 0, abort);
    const auto drives = swap.drives();
    report.ok("drive", fmt::format("{}: {}", folder.string(), to_string(drives[0].mode)));
    for (const std::string& reason : drives[0].refused) report.note("drive", "not used there: " + reason);
    for (const std::string& note : drives[0].notes) report.note("drive", note);
  } catch (const Error& error) {
    if (asked)
      report.fix("drive", error.what());
    else
      report.note("drive", error.what());
  }
}

}  // namespace

int doctor(std::ostream& out, std::span<const fs::path> folders) {
  Report report(out);
  processor(report);
  cores(report);
  memory(report);
  huge_pages(report);
  topology(report);
  mpi(report);
  shared_memory(report);
  gpu(report);
  for (const fs::path& folder : folders) drive(report, folder, true);
  if (folders.empty()) drive(report, fs::current_path(), false);
  return report.broken() ? static_cast<int>(Exit::failed) : 0;
}

}  // namespace strata::launcher
