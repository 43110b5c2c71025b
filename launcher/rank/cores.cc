#include "launcher/rank/cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/words.h"
#include "comm/exchange_values.h"

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

// The ancestor process that starts ranks: mpirun, its daemon on this node, or Slurm's; 0 if there is none.
pid_t starter_above() {
  constexpr int kMaxLevels = 32;
  pid_t pid = ::getpid();
  for (int level = 0; level < kMaxLevels && pid > 1; ++level) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(file, line);
    const std::size_t begin = line.find('('), end = line.rfind(')');
    if (begin == std::string::npos || end == std::string::npos) return 0;
    const auto name = std::string_view(line).substr(begin + 1, end - begin - 1);
    if (has_word("mpirun mpiexec orterun orted prterun prted slurmstepd", name)) return pid;
    if (std::sscanf(line.c_str() + end + 1, " %*c %d", &pid) != 1) return 0;
  }
  return 0;
}

// The node's cores that ranks may use. mpirun binds each rank, but not itself, so the binding of mpirun is the user's
// (taskset).
std::vector<hwloc_obj_t> usable_cores(const Topology& topology) {
  std::vector<hwloc_obj_t> all, usable;
  for (int core = 0; core < topology.cores(); ++core)
    if (const hwloc_obj_t object = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_CORE, static_cast<unsigned>(core)))
      all.push_back(object);
  const pid_t starter = starter_above();
  if (starter == 0) return all;
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  if (hwloc_get_proc_cpubind(topology.get(), starter, set, 0) == 0)
    std::ranges::copy_if(all, std::back_inserter(usable),
                         [&](hwloc_obj_t core) { return hwloc_bitmap_intersects(core->cpuset, set) != 0; });
  hwloc_bitmap_free(set);
  return usable.empty() ? all : usable;
}

CoreShare bind_share(int node_rank, int node_size) {
  // Under mpirun, an existing binding is mpirun's: one core per rank. Otherwise it is the user's (taskset) and is kept.
  if (node_size == 1 && !std::getenv("OMPI_COMM_WORLD_SIZE")) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const int usable = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return {std::max(1, usable), counted(std::max(1, usable), "core") + " that this process may use"};
  }
  const Topology topology;
  const std::vector<hwloc_obj_t> usable = usable_cores(topology);
  const int cores = std::max(1, static_cast<int>(usable.size()));
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  const int first = node_size > cores ? 0 : node_rank * cores / node_size;
  const int last = node_size > cores ? cores : (node_rank + 1) * cores / node_size;
  for (std::size_t core = static_cast<std::size_t>(first); core < std::min<std::size_t>(last, usable.size()); ++core)
    hwloc_bitmap_or(set, set, usable[core]->cpuset);
  const bool bound = !hwloc_bitmap_iszero(set) && hwloc_set_cpubind(topology.get(), set, HWLOC_CPUBIND_PROCESS) == 0;
  hwloc_bitmap_free(set);
  const int share = node_size > cores ? 1 : last - first;
  if (!bound) return {share, "cores not bound: the system refused"};
  if (node_size > cores) return {share, fmt::format("{} ranks share {}, not bound", node_size, counted(cores, "core"))};
  if (share != cores) return {share, counted(share, "core") + " each"};
  if (cores != topology.cores()) return {share, counted(cores, "core") + " that its starter may use"};
  return {share, cores == 1 ? "the only core" : fmt::format("all {} cores", cores)};
}

}  // namespace

CoreShare bind_cores(int node_rank, int node_size) {
  const CoreShare share =
      within_quota(bind_share(node_rank, node_size), cpu_quota(), node_rank, node_size, "the cgroup's CPU quota");
  const char* const job = std::getenv("SLURM_JOB_CPUS_PER_NODE");
  return within_quota(share, job ? slurm_processors(job) : std::nullopt, node_rank, node_size, "the Slurm job");
}

std::optional<double> slurm_processors(std::string_view text) {
  int processors = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), processors);
  const std::string_view more = text.substr(static_cast<std::size_t>(rest - text.data()));
  if (error != std::errc() || processors < 1 || more.find(',') != std::string_view::npos) return std::nullopt;
  return processors;
}

CoreShare within_quota(CoreShare share, std::optional<double> quota, int node_rank, int node_size,
                       std::string_view limit) {
  if (!quota) return share;
  const std::int64_t all = threads_within(*quota);
  const auto own =
      static_cast<int>(all < node_size ? 1 : (node_rank + 1) * all / node_size - node_rank * all / node_size);
  if (own >= share.cores) return share;
  return {own, fmt::format("{}; {} allows {:.4g} on the node", share.note, limit, *quota)};
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

std::string oversubscription_text(const CoreShare& share, std::optional<std::int64_t> asked, comm::World& world) {
  struct Threads {
    std::int64_t asked, cores;
    bool operator==(const Threads&) const = default;
    bool oversubscribed() const { return asked > cores; }
  };
  const std::vector<Threads> ranks = comm::exchange_value(world, Threads{asked.value_or(0), share.cores});
  const auto first = std::ranges::find_if(ranks, &Threads::oversubscribed);
  if (first == ranks.end()) return "";
  const bool all = std::ranges::all_of(ranks, [&](const Threads& rank) { return rank == *first; });
  const std::string who = ranks.size() == 1 ? "this process"
                          : all             ? "each rank"
                                            : fmt::format("rank {}", first - ranks.begin());
  return fmt::format(
      "device.threads = {}, but {} has only {}, so its threads wait for each other: set device.threads = {}",
      first->asked, who, counted(static_cast<std::uint64_t>(first->cores), "core"), first->cores);
}

int cores_here(const std::optional<double>& quota) {
  return cores_within(Topology().cores(), quota);
}

}  // namespace strata::launcher
