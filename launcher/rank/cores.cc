#include "launcher/rank/cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/quantity.h"

namespace strata::launcher {
namespace {

// hwloc's view of the machine. Owns the topology.
class Topology {
 public:
  Topology() {
    hwloc_topology_init(&topology_);
    hwloc_topology_load(topology_);
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  hwloc_topology_t get() const { return topology_; }
  int cores() const { return std::max(1, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_CORE)); }

 private:
  hwloc_topology_t topology_ = nullptr;
};

CoreShare bind_share(int node_rank, int node_size) {
  // Under mpirun an existing binding is mpirun's, one core per rank. Otherwise it is the user's (taskset) and is kept.
  if (node_size == 1 && !std::getenv("OMPI_COMM_WORLD_SIZE")) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const int usable = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return {std::max(1, usable),
            counted(static_cast<std::uint64_t>(std::max(1, usable)), "core") + " that this process may use"};
  }
  const Topology topology;
  const int cores = topology.cores();
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  const int first = node_size > cores ? 0 : node_rank * cores / node_size;
  const int last = node_size > cores ? cores : (node_rank + 1) * cores / node_size;
  for (int core = first; core < last; ++core)
    if (const hwloc_obj_t object = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(core)))
      hwloc_bitmap_or(set, set, object->cpuset);
  const bool bound = !hwloc_bitmap_iszero(set) && hwloc_set_cpubind(topology.get(), set, HWLOC_CPUBIND_PROCESS) == 0;
  hwloc_bitmap_free(set);
  const int share = node_size > cores ? 1 : last - first;
  if (!bound) return {share, "cores not bound: the system refused"};
  if (node_size > cores)
    return {share,
            fmt::format("{} ranks share {}, not bound", node_size, counted(static_cast<std::uint64_t>(cores), "core"))};
  return {share, share != cores ? counted(static_cast<std::uint64_t>(share), "core") + " each"
                 : cores == 1   ? "the only core"
                                : fmt::format("all {} cores", cores)};
}

}  // namespace

CoreShare bind_cores(int node_rank, int node_size) {
  return within_quota(bind_share(node_rank, node_size), cpu_quota(), node_rank, node_size);
}

CoreShare within_quota(CoreShare share, std::optional<double> quota, int node_rank, int node_size) {
  if (!quota) return share;
  const std::int64_t all = threads_within(*quota);
  const auto own =
      static_cast<int>(all < node_size ? 1 : (node_rank + 1) * all / node_size - node_rank * all / node_size);
  if (own >= share.cores) return share;
  return {own, fmt::format("{}; a quota of the control group allows {:.4g} on the node", share.note, *quota)};
}

std::string threads_text(const CoreShare& share, int threads, comm::World& world) {
  int least = threads, most = threads;
  std::vector<std::string> notes;
  for (const std::string& text : world.exchange(fmt::format("{} {}", threads, share.note))) {
    const int theirs = std::stoi(text);
    least = std::min(least, theirs);
    most = std::max(most, theirs);
    std::string others = text.substr(text.find(' ') + 1);
    if (std::find(notes.begin(), notes.end(), others) == notes.end()) notes.push_back(std::move(others));
  }
  return fmt::format("{}{} {} per rank ({})", least, most > least ? fmt::format(" to {}", most) : "",
                     most == 1 ? "thread" : "threads", fmt::join(notes, ", others "));
}

int cores_here(const std::optional<double>& quota) {
  return cores_within(Topology().cores(), quota);
}

}  // namespace strata::launcher
