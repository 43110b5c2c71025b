#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/abort.h"
#include "launcher/control/watch/node_liveness.h"
#include "launcher/control/watch/node_memory.h"
#include "launcher/control/watch/node_stream.h"
#include "launcher/control/watch/rank_view.h"
#include "launcher/control/watch/watch.h"

namespace strata::launcher::control {

// A report of where the ranks of this process's node are at `now`, in ns on the steady clock.
pb::NodeReport report_of(NodeMemory& memory, std::int64_t now);

// A thread in every rank. It shows that the process runs, sends the node's reports if no lower rank of the node can,
// and ends the rank when there is a verdict.
class RankMonitor {
 public:
  struct Setup {
    AbortToken* token = nullptr;
    double timeout = 0;                                  // seconds; 0: never
    std::string rank0;                                   // "rank 0 on n1"
    std::string target;                                  // addresses of rank 0, for other nodes
    Credentials credentials;                             // the credentials of the streams
    std::function<void(const pb::NodeReport&)> receive;  // rank 0: takes the report of its own node
    std::function<std::uint32_t()> dump_number;          // rank 0
    std::function<void()> start;                         // rank 0, once, before the constructor returns
    std::function<void(bool resumed)> tick;              // rank 0, ten times per second
  };
  // The memory must outlive it. Rethrows what start() throws.
  RankMonitor(NodeMemory& memory, Setup setup);
  ~RankMonitor();

  void set_names(TaskNames names);

 private:
  void run(const std::stop_token& stop);
  void beat(std::int64_t now);
  bool is_reporter(std::int64_t now) const;
  std::vector<runtime::Phase> phases() const;
  void send_report(std::int64_t now);
  void look_at_rank0(std::int64_t now);
  void apply(const pb::NodeOrder& order);
  void answer_dump();
  pb::NodeReport report(std::int64_t now);
  bool ended();

  NodeMemory& memory_;
  Setup setup_;
  const int rank_;
  std::mutex mutex_;
  TaskNames names_;
  NodeLiveness rank0_;  // as seen from this rank; left: rank 0 no longer watches
  std::atomic<std::uint32_t> dump_number_{0};
  std::uint32_t dump_reported_ = 0;
  std::uint64_t moved_ = 0;  // what the process has moved so far, in MiB
  std::int64_t last_, sent_at_ = 0;
  std::vector<runtime::Phase> sent_phases_;  // of the node's ranks, in the newest report
  bool reporter_ = false;
  std::unique_ptr<NodeStream> stream_;
  std::jthread thread_;
};

}  // namespace strata::launcher::control
