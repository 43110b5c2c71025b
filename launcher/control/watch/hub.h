#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/note.h"
#include "launcher/control/board.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/watch/node_memory.h"
#include "launcher/control/watch/node_stream.h"
#include "launcher/control/watch/watch.h"

namespace strata::launcher::control {

// Rank 0's: what all nodes tell comes together here, and the verdict is given. Thread-safe: gRPC's threads tell it, the
// control thread looks.
class Hub {
 public:
  struct Setup {
    Watch::Limits limits;
    // For the streams of other nodes; none if there are none.
    std::optional<Listener> listener;
    Credentials credentials;
    std::string dump_folder;  // where the state of a stuck run is written
    Note say;
    std::function<void(const NodeMemory::Verdict&)> end;  // rank 0's node ends
  };
  // Memory and board outlive it.
  Hub(NodeMemory& memory, Board& board, Setup setup);
  ~Hub();

  // Lets the streams of other nodes in. gRPC's threads are started by the thread that calls it.
  void open();

  void know(TaskNames names);
  // Of this node.
  void told(const pb::NodeReport& report);
  // Ten times a second; `resumed`: this process was stopped until now.
  void look(bool resumed);
  void fill(pb::Status& status);
  // Asks all ranks what they do, and calls done once they have told, or some seconds later with those that have.
  void dump(std::function<void(pb::Dump)> done);
  // Rank 0 leaves: the others are to watch no more.
  void leave();
  // The number of the newest request for a dump.
  std::uint32_t dump_number() const;

  struct RankFigures {  // for metrics
    int rank;
    std::string node;
    double compute;
  };
  std::vector<RankFigures> figures();

 private:
  struct Asked {
    std::uint32_t number;
    double since;
    std::map<int, pb::NodeReport> answers;  // by node
    std::function<void(pb::Dump)> done;
  };
  void finish_dumps(double now);
  void end(const NodeMemory::Verdict& verdict);
  void end_stuck(const Watch::Finding& finding);

  NodeMemory& memory_;
  Board& board_;
  Setup setup_;
  mutable std::mutex mutex_;
  Watch watch_;
  pb::NodeOrder order_;
  std::vector<Asked> asked_;
  bool ending_ = false;
  double next_look_ = 0;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<Doorkeeper> door_;
};

// Of the steady clock.
double steady_seconds();

}  // namespace strata::launcher::control
