// Measures the cost of many nodes' streams on rank 0. A second process plays the nodes, each with a connection of its
// own and a report of eight ranks per second. This one receives them as rank 0 does, and prints the share of a core and
// the memory used.
//   node_streams [NODES] [SECONDS]
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launcher/control/service/listener.h"
#include "launcher/control/watch/hub.h"
#include "launcher/control/watch/node_stream.h"
#include "launcher/control/watch/watch.h"

namespace {

using namespace strata;
using namespace strata::launcher::control;
using namespace std::chrono_literals;

constexpr int kRanks = 8;  // per node

[[noreturn]] void play(int nodes, const std::string& target, const Credentials& credentials) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto progress = std::make_unique<runtime::RankProgress>();
  std::vector<std::unique_ptr<NodeStream>> streams;
  for (int node = 0; node < nodes; ++node)
    streams.push_back(std::make_unique<NodeStream>(target, credentials, [](const pb::NodeOrder&) {}));
  for (std::int64_t second = 0;; ++second) {
    const auto next = std::chrono::steady_clock::now() + 1s;
    for (int node = 0; node < nodes; ++node) {
      pb::NodeReport report;
      report.set_node(node);
      const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
      for (auto& lane : progress->lanes) {
        lane.place.store(runtime::packed({second, node, true}));
        lane.since.store(now - 1'000'000);
      }
      for (int rank = 0; rank < kRanks; ++rank) *report.add_ranks() = report_of(node * kRanks + rank, *progress, now);
      streams[static_cast<std::size_t>(node)]->send(report);
      std::this_thread::sleep_for(1s / (2 * nodes));  // nodes do not report at the same moment
    }
    std::this_thread::sleep_until(next);
  }
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double resident_mib() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  in >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 0x1p20;
}

}  // namespace

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 512, seconds = argc > 2 ? std::atoi(argv[2]) : 30;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const Credentials credentials = make_credentials();
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "node_streams");
  const std::string target = fmt::format("ipv4:127.0.0.1:{}", listener.port());
  const pid_t child = fork();  // before gRPC starts its threads
  if (child == 0) play(nodes, target, credentials);

  const double memory_before = resident_mib();
  NodeMap map;
  for (int node = 0; node < nodes; ++node) {
    map.nodes.push_back({fmt::format("n{}", node), {}});
    for (int rank = 0; rank < kRanks; ++rank) {
      map.nodes.back().ranks.push_back(node * kRanks + rank);
      map.node_of.push_back(node);
    }
  }
  std::mutex mutex;
  Watch watch({30, 60, 600}, map, steady_seconds());
  std::atomic<std::uint64_t> reports{0}, lost{0};
  NodeServer server(credentials, nodes, 5,
                    {[&](const pb::NodeReport& report) {
                       std::vector<RankView> views;
                       for (const pb::RankReport& rank : report.ranks()) views.push_back(view_of(rank));
                       const std::lock_guard lock(mutex);
                       watch.heard(report.node(), views, steady_seconds());
                       ++reports;
                       return true;
                     },
                     [](int) {}});
  const ConnectionLimiter limiter(std::move(listener), static_cast<std::size_t>(4 * nodes + 16),
                                  [&](Descriptor connection) { server.adopt(std::move(connection)); });
  while (reports.load() < 4 * static_cast<std::uint64_t>(nodes)) std::this_thread::sleep_for(100ms);
  const double cpu = cpu_seconds();
  const std::uint64_t before = reports.load();
  const double begin = steady_seconds();
  while (steady_seconds() < begin + seconds) {
    {
      const std::lock_guard lock(mutex);
      lost += watch.look(steady_seconds()).size();
    }
    std::this_thread::sleep_for(500ms);
  }
  const double took = steady_seconds() - begin;
  fmt::print("{} nodes of {} ranks: {:.0f} reports/s, {:.2f}% of a core, {:.1f} MiB more than before, {} findings\n",
             nodes, kRanks, static_cast<double>(reports.load() - before) / took, 100 * (cpu_seconds() - cpu) / took,
             resident_mib() - memory_before, lost.load());
  std::fflush(stdout);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::_Exit(0);
}
