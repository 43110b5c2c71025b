#include "launcher/launch/ranks/allocation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/host/host.h"
#include "base/quantity.h"
#include "base/quote.h"

namespace strata::launcher {
namespace {

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

// The first of these variables that is set, with its value; empty if none is set.
std::pair<std::string, std::string> first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::string value = variable(name); !value.empty()) return {name, std::move(value)};
  return {};
}

// Why srun cannot start ranks on this machine; empty if it can.
std::string why_not_srun() {
  if (find_program("srun").empty()) return "there is no srun in PATH";
  const ProgramResult result = run_program({{"srun", "--mpi=list"}}, 20);
  const std::string text = result.errors + result.out;
  if (text.find("pmix") != std::string::npos) return {};
  if (result.code != 0)  // Slurm may have no configuration here
    return fmt::format("srun --mpi=list does not show whether this Slurm has PMIx ({})",
                       text.empty() ? "it prints nothing" : text.substr(0, text.find('\n')));
  return "this Slurm has no PMIx (srun --mpi=list does not name pmix)";
}

Allocation slurm_allocation() {
  Allocation out;
  out.in_slurm = true;
  out.origin = "Slurm job " + variable("SLURM_JOB_ID");
  const std::vector<std::string> names = slurm_names(variable("SLURM_JOB_NODELIST"));
  // If the job has no number of tasks, its processors are the slots.
  const bool asked = !variable("SLURM_NTASKS").empty() || !variable("SLURM_NTASKS_PER_NODE").empty();
  const std::vector<int> slots = per_node(variable(asked ? "SLURM_TASKS_PER_NODE" : "SLURM_JOB_CPUS_PER_NODE"));
  for (std::size_t i = 0; i < names.size(); ++i)
    out.hosts.push_back({names[i], i < slots.size() ? std::optional(slots[i]) : std::nullopt, !asked});
  if (asked) out.ranks = std::accumulate(slots.begin(), slots.end(), 0);
  out.why_not_srun = why_not_srun();
  out.starter = out.why_not_srun.empty() ? Starter::srun : Starter::mpirun;
  return out;
}

// Keeps only the nodes of the allocation that --hosts names. They keep their slots unless --hosts gives their number.
void narrow(Allocation& allocation, std::vector<Host> asked) {
  for (Host& host : asked) {
    const auto has = [&](const Host& known) { return known.name == host.name; };
    const auto known = std::find_if(allocation.hosts.begin(), allocation.hosts.end(), has);
    if (known == allocation.hosts.end())
      fail(Exit::usage, "--hosts names {}, which {} does not have: leave --hosts out, or name nodes of {}", host.name,
           allocation.origin,
           describe(distribute_ranks(allocation.hosts, static_cast<int>(allocation.hosts.size()), 1)));
    if (known->slots && host.slots.value_or(0) > *known->slots)
      fail(Exit::usage, "--hosts requests {} on {}, but {} has room for only {}", counted(*host.slots, "rank"),
           host.name, allocation.origin, *known->slots);
    if (!host.slots) host = *known;
  }
  allocation.hosts = std::move(asked);
  allocation.ranks.reset();
}

}  // namespace

std::string_view program_of(Starter starter) {
  return starter == Starter::srun ? "srun" : "mpirun";
}

Starter starter_of(std::string_view version) {
  constexpr std::string_view kName = "(Open MPI) ";
  const std::size_t at = version.find(kName);
  int release = 0;
  if (at != std::string_view::npos)
    std::from_chars(version.data() + at + kName.size(), version.data() + version.size(), release);
  return release >= 5 ? Starter::prterun : Starter::mpirun;
}

std::string remote_shell_agent() {
  return first_set({"PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"}).second;
}

std::vector<int> per_node(std::string_view text) {
  std::vector<int> out;
  while (!text.empty()) {
    int count = 0, times = 1;
    const char* const end = text.data() + text.size();
    auto [at, error] = std::from_chars(text.data(), end, count);
    if (error != std::errc()) return {};
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      const auto repeated = std::from_chars(at + 2, end, times);
      if (repeated.ec != std::errc() || repeated.ptr == end || *repeated.ptr != ')') return {};
      at = repeated.ptr + 1;
    }
    if (at != end && *at++ != ',') return {};
    out.insert(out.end(), static_cast<std::size_t>(std::clamp(times, 0, 1 << 20)), count);
    text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  }
  return out;
}

Allocation find_allocation(const std::optional<std::string>& hosts) {
  Allocation out;
  double timeout = 0;
  if (!variable("SLURM_JOB_ID").empty() && !variable("SLURM_JOB_NODELIST").empty()) {
    out = slurm_allocation();
    if (hosts) narrow(out, read_hosts(*hosts));
  } else if (hosts) {
    out.hosts = read_hosts(*hosts);
    out.origin = "--hosts";
  } else if (const auto [set, file] = first_set({"PRTE_MCA_prte_default_hostfile", "OMPI_MCA_orte_default_hostfile"});
             !file.empty()) {
    out.hosts = read_hosts(file);
    const bool job = !variable("K_MPI_JOB_ROLE").empty();
    out.origin = job ? "the MPIJob's hostfile" : set;
    if (job) timeout = 60;  // its workers get their names only while they start
  } else if (const auto [queue, list] = first_set({"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}); !list.empty()) {
    out.hosts = read_hosts(list);
    out.origin = queue;
  } else if (!variable("PE_HOSTFILE").empty()) {
    fail(Exit::usage,
         "this is a Grid Engine job, whose list of nodes ({}) launch does not read: give --hosts a file with NAME "
         "slots=N in each line",
         variable("PE_HOSTFILE"));
  } else {
    out.hosts = {{host_name(), std::nullopt}};
    out.origin = "this machine";
  }
  if (out.starter != Starter::srun) {
    if (find_program("mpirun").empty())
      fail(Exit::usage, "there is no mpirun in PATH: install Open MPI (apt-get install openmpi-bin)");
    out.starter = starter_of(run_program({{"mpirun", "--version"}}, 20).out);
  }
  if (!out.in_slurm) require_network_names(out.hosts, out.origin);
  if (out.origin != "this machine") require_addresses(out.hosts, out.origin, timeout);
  return out;
}

std::vector<Share> distribute_ranks(const std::vector<Host>& hosts, int ranks, int default_slots) {
  std::vector<Share> out;
  out.reserve(hosts.size());
  for (const Host& host : hosts) out.push_back({host.name, 0});
  for (bool placed = true; ranks > 0 && placed;) {
    placed = false;
    for (std::size_t i = 0; i < hosts.size() && ranks > 0; ++i)
      if (out[i].ranks < hosts[i].slots.value_or(default_slots)) {
        ++out[i].ranks;
        --ranks;
        placed = true;
      }
  }
  if (ranks > 0) return {};
  std::erase_if(out, [](const Share& share) { return share.ranks == 0; });
  return out;
}

int total(const std::vector<Share>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0, [](int sum, const Share& one) { return sum + one.ranks; });
}

int ranks_on(const Host& host, std::size_t gpus) {
  const int per_gpu = static_cast<int>(std::clamp<std::size_t>(gpus, 1, 4096));
  if (!host.slots) return per_gpu;
  return host.processors && gpus > 0 ? std::min(*host.slots, per_gpu) : *host.slots;
}

std::string describe(const std::vector<Share>& shares) {
  constexpr std::size_t kShown = 16;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, shares.size()); ++i)
    out += fmt::format("{}{} ({})", i ? ", " : "", shares[i].host, shares[i].ranks);
  return shares.size() > kShown ? fmt::format("{} and {} more", out, shares.size() - kShown) : out;
}

Program on_node(const Allocation& allocation, const std::string& host, const std::vector<std::string>& words,
                const std::vector<std::string>& variables, bool listens) {
  if (allocation.in_slurm && !find_program("srun").empty()) {
    std::vector<std::string> all = {"srun",       "--overlap",       "--nodes=1",         "--ntasks=1",
                                    "--mpi=none", "--cpu-bind=none", "--cpus-per-task=1", "--ntasks-per-node=1",
                                    "--quiet",    "--export=ALL",    "--nodelist=" + host};
    all.insert(all.end(), words.begin(), words.end());
    return {all, variables, listens};
  }
  if (is_this_machine(host)) return {words, variables, listens};
  std::string line = "cd " + shell_word(std::filesystem::current_path().string()) + " && exec env";
  for (const std::string& one : variables) line += " " + shell_word(one);
  for (const std::string& word : words) line += " " + shell_word(word);
  std::vector<std::string> all;
  // Kubeflow's first MPIJobs come with their own agent.
  if (const std::string agent = remote_shell_agent(); !agent.empty() && agent.find("ssh") != 0)
    all = {agent};
  else
    all = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"};
  all.push_back(host);
  all.push_back(line);
  return {all, {}, listens};
}

std::string why_not_reached(const std::string& host, std::string_view output, std::optional<int> code) {
  const auto has = [&](std::string_view part) { return output.find(part) != std::string_view::npos; };
  if (has("Host key verification failed"))
    return fmt::format("ssh does not know {0}'s key: run ssh {0} once, or ssh-keyscan {0} >> ~/.ssh/known_hosts", host);
  if (has("Permission denied (") || has("Too many authentication failures"))
    return fmt::format("ssh to {0} asks for a password or refuses the key: create a key and run ssh-copy-id {0}", host);
  if (has("error while loading shared libraries"))
    return fmt::format(
        "strata does not start on {}: a library is missing there; install the same packages on every "
        "node: {}",
        host, output.substr(output.find("error while loading")));
  if (has("Unable to create step") && has("node configuration is not available"))
    return fmt::format("Slurm has removed {0} from the job: scontrol show node {0} says why", host);
  // Recognise only this folder and this program, because the message about any other missing file needs no advice.
  const std::string folder = std::filesystem::current_path().string(), program = own_program().string();
  if (has("cd: ") && has(folder))
    return fmt::format("{} has no folder {}: give every node the same folders, on a shared file system", host, folder);
  const int exit = code.value_or(0);
  if (exit == 126 || exit == 127 || (has(program) && has("No such file or directory")))
    return fmt::format("{} has no {}: install the same build under the same path on every node", host, program);
  const std::size_t begin = output.find_first_not_of(" \t\r\n");
  std::string_view last = begin == std::string_view::npos ? std::string_view() : output.substr(begin);
  while (!last.empty() && (last.back() == '\n' || last.back() == '\r')) last.remove_suffix(1);
  if (const std::size_t line = last.rfind('\n'); line != std::string_view::npos) last.remove_prefix(line + 1);
  if (last.empty()) return fmt::format("{} does not respond", host);
  return fmt::format("{} does not respond: {}", host, last);
}

}  // namespace strata::launcher
