#include "launcher/launch/ranks/rank_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/host/host.h"
#include "launcher/screen/run_text.h"

extern char** environ;

namespace strata::launcher {
namespace {

constexpr const char* kMpi = "OMPI_MCA_btl_tcp_if_";  // followed by include or exclude; Open MPI refuses both together
constexpr const char* kDaemons = "OMPI_MCA_oob_tcp_if_";
constexpr const char* kPrrteDaemons = "PRTE_MCA_prte_if_";
constexpr const char* kNccl = "NCCL_SOCKET_IFNAME";

std::vector<std::string> set_ones(const std::string& beginning, std::initializer_list<const char*> ends) {
  std::vector<std::string> out;
  for (const char* const end : ends)
    if (const char* value = std::getenv((beginning + end).c_str())) out.push_back(beginning + end + "=" + value);
  return out;
}
std::vector<std::string> mpi_ones(const char* beginning) {
  return set_ones(beginning, {"include", "exclude"});
}

std::string own_path() {
  return own_program().string();
}

std::vector<std::string> mpirun_words(const RankStart& start, bool prrte) {
  std::string hosts;
  for (const Share& share : start.shares)
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", share.host, share.ranks);
  std::string ssh = "-o BatchMode=yes -o ConnectTimeout=10";
  for (const char* variable : {"PRTE_MCA_plm_ssh_args", "OMPI_MCA_plm_rsh_args"})
    if (const char* given = std::getenv(variable)) {
      ssh = std::string(given) + " " + ssh;
      break;
    }
  // Ranks bind themselves. No hostfile is used, because --host would only filter one that is in the environment, not
  // replace it.
  std::vector<std::string> words = {"mpirun", "--bind-to", "none", "--map-by", "slot", "--host", hosts};
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add({"-n", std::to_string(total(start.shares)), "--wdir", std::filesystem::current_path().string()});
  if (prrte) {
    // raw passes on what is read unchanged. Otherwise prterun moves the unfinished line at the end of a read before the
    // other lines of that read.
    add({"--output", "tag:raw", "--prtemca", "plm_ssh_args", ssh, "--prtemca", "prte_default_hostfile", "none"});
    // Open MPI 5 cannot connect the ranks of one node over IPv6, and each rank would report that. All nodes have IPv4.
    if (!std::getenv("OMPI_MCA_btl_tcp_disable_family")) add({"--mca", "btl_tcp_disable_family", "6"});
    // Open MPI 5 does not read the variable of Open MPI 4.
    if (const std::string agent = remote_shell_agent(); !agent.empty()) add({"--prtemca", "plm_ssh_agent", agent});
  } else {
    add({"--tag-output", "--mca", "plm_rsh_args", ssh, "--mca", "orte_default_hostfile", "none"});
  }
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  if (start.interface)
    for (const char* beginning : {kMpi, prrte ? kPrrteDaemons : kDaemons})
      if (start.interface_asked || mpi_ones(beginning).empty())
        add({beginning == kPrrteDaemons ? "--prtemca" : "--mca", std::string(beginning).substr(9) + "include",
             *start.interface});
  for (const std::string& name : start.variables) add({"-x", name});
  return words;
}

std::vector<std::string> srun_words(const RankStart& start) {
  // --wait: how long the other ranks may take to print their last words after one has ended, which takes seconds.
  std::vector<std::string> words = {"srun",
                                    "--mpi=pmix",
                                    "--label",
                                    "--input=none",
                                    "--overlap",
                                    "--cpu-bind=none",
                                    "--no-kill",
                                    "--wait=60",
                                    "--kill-on-bad-exit=0",
                                    "--export=ALL",  // also in a job of sbatch --export=NONE
                                    fmt::format("--nodes={}", start.shares.size()),
                                    fmt::format("--ntasks={}", total(start.shares))};
  // List each node once per rank, which allows any distribution.
  std::vector<std::string> hosts;
  for (const Share& share : start.shares) hosts.insert(hosts.end(), static_cast<std::size_t>(share.ranks), share.host);
  words.push_back(fmt::format("--nodelist={}", fmt::join(hosts, ",")));
  words.emplace_back("--distribution=arbitrary");
  return words;
}

// The names of variables that begin with one of these, or are equal to it, in sorted order.
std::vector<std::string> names_like(std::initializer_list<std::string_view> beginnings) {
  std::vector<std::string> out;
  for (char** one = environ; *one; ++one) {
    const std::string_view name = std::string_view(*one).substr(0, std::string_view(*one).find('='));
    if (name == "LD_LIBRARY_PATH" || std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view beginning) {
          return name.starts_with(beginning);
        }))
      out.emplace_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_name(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

}  // namespace

std::vector<std::string> interface_variables() {
  std::vector<std::string> out = mpi_ones(kMpi);
  for (const auto& more : {mpi_ones(kDaemons), mpi_ones(kPrrteDaemons), set_ones(kNccl, {""})})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

Program rank_program(const Allocation& allocation, const RankStart& start) {
  RankStart all = start;
  std::vector<std::string> environment;
  const auto set = [&](const std::string& name, const std::string& value) {
    environment.push_back(name + "=" + value);
    if (std::find(all.variables.begin(), all.variables.end(), name) == all.variables.end())
      all.variables.push_back(name);
  };
  set("STRATA_LAUNCH", start.run);
  set(kTypedResume, start.resume);
  set("STRATA_PROGRESS", "lines");  // the terminal belongs to launch
  if (start.interface) {
    const bool asked = start.interface_asked;
    if (asked || !std::getenv(kNccl)) set(kNccl, "=" + *start.interface);  // "=": exactly this name, not a prefix
    if (allocation.starter == Starter::srun && (asked || mpi_ones(kMpi).empty()))
      set(std::string(kMpi) + "include", *start.interface);
  }
  std::vector<std::string> words =
      allocation.starter == Starter::srun ? srun_words(all) : mpirun_words(all, allocation.starter == Starter::prterun);
  words.push_back(own_path());
  words.insert(words.end(), start.words.begin(), start.words.end());
  return {words, environment, false, allocation.starter != Starter::srun};
}

std::vector<std::string> forwarded_names(const std::vector<std::string>& named) {
  std::vector<std::string> out = names_like({"STRATA_", "NCCL_"});
  for (const std::string& text : named) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (!is_name(name))
      fail(Exit::usage, "--env {}: \"{}\" is not a variable's name: give NAME or NAME=VALUE", text, name);
    if (equals != std::string::npos)
      ::setenv(name.c_str(), text.c_str() + equals + 1, 1);
    else if (!std::getenv(name.c_str()))
      fail(Exit::usage, "--env {0}: {0} is not set here: export it, or give {0}=VALUE", name);
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

std::vector<std::string> agent_environment() {
  std::vector<std::string> out;
  for (const std::string& name : names_like({"STRATA_"})) out.push_back(name + "=" + std::getenv(name.c_str()));
  return out;
}

}  // namespace strata::launcher
