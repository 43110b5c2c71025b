#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
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
#include "launcher/control/watch/quiet_thread.h"
#include "launcher/control/watch/watch.h"

namespace strata::launcher::control {

// A file that appears whole or not at all (AtomicFile).
void write_whole(const std::string& path, const std::string& text);

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
    double to_write = 5;      // seconds; a drive that does not answer by then keeps no run from its end
    // Writes it whole, or throws Error; in a thread that may outlive the hub. Tests put a drive that hangs here.
    std::function<void(const std::string& path, const std::string& text)> write = write_whole;
    Note say;                                             // is called in a thread of its own
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
  // Ten times per second; `resumed`: this process was stopped until now.
  void look(bool resumed);
  void fill(pb::Status& status);
  // Asks all ranks what they do, and calls done once they have told, or some seconds later with those that have. Who
  // asks meanwhile is told the same, and the next ones are asked some seconds later: ranks are interrupted no more
  // often than that. Of nobody, once rank 0 has left.
  void dump(std::function<void(pb::Dump)> done);
  // Rank 0 leaves: the others are to watch no more.
  void leave();
  // The number of the newest request for a dump.
  std::uint32_t dump_number() const;
  // Whether look() still comes: rank 0 whose thread hangs is to be missed by the others, and so does not answer them.
  bool is_looking() const;

 private:
  struct Collection {
    std::uint32_t number;
    double since;
    std::map<int, pb::NodeReport> answers;  // by node
  };
  struct StateFile {  // of a stuck run, while another thread writes it
    Watch::Finding finding;
    std::string path;
    double since;
    std::future<bool> written;
  };
  void begin_dump(double now);  // under the lock
  void finish_dump(double now);
  void end(const NodeMemory::Verdict& verdict);
  void end_stuck(const Watch::Finding& finding);
  void finish_stuck(double now);

  NodeMemory& memory_;
  Board& board_;
  Setup setup_;
  mutable std::mutex mutex_;
  Watch watch_;
  pb::NodeOrder order_;
  std::optional<Collection> collection_;
  std::vector<std::function<void(pb::Dump)>> askers_;  // of the collection, or of the next one
  std::optional<StateFile> state_file_;                // of the thread that looks
  bool ending_ = false, left_ = false;
  double next_look_ = 0, next_dump_ = 0;
  std::atomic<double> looked_;
  Teller teller_;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<Doorkeeper> door_;
};

// Of the steady clock.
double steady_seconds();

}  // namespace strata::launcher::control
