#include "launcher/rank/run_as_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/host/host.h"
#include "comm/agreement.h"
#include "comm/nccl/nccl.h"
#include "launcher/screen/printable.h"
#include "runtime/job/capacity.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher {
namespace {

using comm::AgreedError;

// The transport must be known before ranks can agree on the recipe, so it comes from this rank's own reading of the
// recipe, or is chosen automatically if that fails. read_recipe reports what is wrong with the recipe, once.
std::unique_ptr<comm::World> connect(const std::optional<std::filesystem::path>& path,
                                     std::span<const std::string> sets) {
  comm::Backend backend = comm::Backend::automatic;
  comm::Transport transport = comm::Transport::automatic;
  runtime::DeviceKind kind = runtime::DeviceKind::cpu;
  try {
    const runtime::Recipe recipe = runtime::load_recipe(path, sets);
    comm::require_possible(recipe.comm.backend);
    backend = recipe.comm.backend;
    transport = recipe.comm.transport;
    kind = recipe.device.kind;
  } catch (const Error&) {
  }
  auto world = comm::connect(backend, transport);
  device::Device device;
  try {
    device = runtime::choose_rank_device(kind, world->node_rank()).device;
  } catch (const Error&) {
  }
  const bool prints = world->rank() == 0;
  return comm::nccl_world(std::move(world), device, backend, [&](const std::string& why) {
    if (prints) note(fmt::format("collectives go through host memory, not through NCCL: {}", why));
  });
}

// "rank 5"; on several nodes, the node is named too.
std::string own_place(const comm::World& world, const std::string& name) {
  return world.node_size() == world.size() ? name : fmt::format("{} on {}", name, host_name());
}

// Names a rank, with its coordinates if it has any.
using NameOfRank = std::function<std::string(int)>;

std::string name_of(int rank, const NameOfRank& name) {
  return name ? name(rank) : fmt::format("rank {}", rank);
}

void print_end(const comm::World& world, const Failure& failure, const NameOfRank& name) {
  print_failure(fmt::format("{} ends: {}", own_place(world, name_of(world.rank(), name)),
                            with_name(failure.cause, failure.rank, name_of(failure.rank, name))),
                failure.code);
}

// Ends a run in which this rank or another one failed. Returns the exit code, which is the same on all ranks.
int end_failed(comm::World& world, const std::exception& error, const NameOfRank& name) {
  world.report_failure(error.what(), exit_code(error));
  const Failure failure = world.failure(), own = world.abort_token().failure();
  if (!world.prints_failure()) return static_cast<int>(failure.code);
  if (world.size() > 1)
    print_failure(fmt::format("{}: {}", own_place(world, name_of(world.rank(), name)), own.cause), own.code);
  else
    print_failure(own.cause, own.code);
  return static_cast<int>(failure.code);
}

// mpirun ends all ranks soon after one has failed, so rank 0 must print the reason before that.
constexpr std::chrono::seconds kRankZeroFirst{2};

struct Ancestor {
  std::string name;
  int parent = 0;  // 0: none
};

// Empty if this process may not see that one.
std::optional<Ancestor> ancestor(int pid) {
  Ancestor out;
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  if (!file) return std::nullopt;
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kName = "Name:\t", kParent = "PPid:\t";
    if (line.starts_with(kName)) out.name = line.substr(kName.size());
    if (line.starts_with(kParent)) out.parent = std::atoi(line.c_str() + kParent.size());
  }
  return out;
}

}  // namespace

int run_as_rank(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                const std::function<void(comm::World&)>& run, const std::function<std::string(int)>& name) {
  std::unique_ptr<comm::World> world;
  try {
    world = connect(path, sets);
    world->when_lost([&](const Failure& failure) { print_end(*world, failure, name); });
    run(*world);
    world->leave();
    return static_cast<int>(Exit::done);
  } catch (const AgreedError& error) {
    if (world) world->when_lost({});  // mpirun may end ranks that are slow to leave
    // Without an mpirun that started this rank, there is no rank 0 to print the error.
    const std::string left_over = world ? "" : left_over_rank();
    if (!left_over.empty()) {
      print_failure(fmt::format("{}; or unset variables that another run has left in the environment, such as {}",
                                error.what(), left_over),
                    error.code(), error.reason());
    } else if ((world ? world->rank() : comm::launched_rank()) == 0) {
      print_failure(error.what(), error.code(), error.reason());
    } else if (!world) {
      std::this_thread::sleep_for(kRankZeroFirst);
    }
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (!world) throw;
    return end_failed(*world, error, name);
  }
}

std::string with_name(std::string_view cause, int rank, std::string_view name) {
  const std::string begin = fmt::format("rank {} ", rank);
  if (!cause.starts_with(begin)) return std::string(cause);
  std::string_view rest = cause.substr(begin.size());
  // Put the coordinates into the same parentheses as in "rank 5 (pid 7)".
  if (!name.ends_with(')') || !rest.starts_with('(')) return fmt::format("{} {}", name, rest);
  return fmt::format("{}, {}", name.substr(0, name.size() - 1), rest.substr(1));
}

int refuse_as_rank(const Error& error) {
  if (comm::launched_ranks() > 1)
    return run_as_rank(std::nullopt, {}, [&](comm::World& world) { comm::agree(world, [&] { throw Error(error); }); });
  print_failure(error.what(), error.code());
  return static_cast<int>(error.code());
}

bool starts_ranks(const std::string& name) {
  // Programs of Open MPI and PRRTE, Slurm, MPICH and Intel MPI, PBS, Cray, IBM and Flux. The system cuts names after 15
  // characters.
  constexpr std::string_view kBegin[] = {"mpirun", "mpiexec", "orte", "prte",   "prun",  "srun",  "slurm", "hydra",
                                         "pmi_",   "pbs_",    "pals", "apinit", "aprun", "jsrun", "jsm",   "flux-"};
  return std::any_of(std::begin(kBegin), std::end(kBegin),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

std::string left_over_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const rank = std::getenv(variable);
    if (!rank) continue;
    constexpr int kMost = 64;  // a bound, because /proc may change in the meantime
    int pid = ::getppid();
    for (int i = 0; i < kMost && pid > 0; ++i) {
      const auto above = ancestor(pid);
      if (!above || starts_ranks(above->name)) return {};
      pid = above->parent;
    }
    return fmt::format("{}={}", variable, rank);
  }
  return {};
}

}  // namespace strata::launcher
