#include "launcher/rank/launcher_above.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace strata::launcher {
namespace {

struct Ancestor {
  std::string name;
  int parent = 0;  // 0: none
};

// None: this process may not see it.
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

bool starts_ranks(const std::string& name) {
  // Of Open MPI and PRRTE, Slurm, MPICH and Intel MPI, PBS, Cray, IBM and Flux; the system cuts names at 15 letters.
  constexpr std::string_view kBegin[] = {"mpirun", "mpiexec", "orte", "prte",   "prun",  "srun",  "slurm", "hydra",
                                         "pmi_",   "pbs_",    "pals", "apinit", "aprun", "jsrun", "jsm",   "flux-"};
  return std::any_of(std::begin(kBegin), std::end(kBegin),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

std::string left_over_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const rank = std::getenv(variable);
    if (!rank) continue;
    constexpr int kMost = 64;  // however /proc changes meanwhile
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
