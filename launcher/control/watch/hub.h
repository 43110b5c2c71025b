#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "launcher/control/board.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/watch/background_thread.h"
#include "launcher/control/watch/node_memory.h"
#include "launcher/control/watch/node_stream.h"
#include "launcher/control/watch/watch.h"

namespace strata::launcher::control {

// Writes a file through AtomicFile: it appears complete or not at all.
void write_atomically(const std::string& path, const std::string& text);

// Receives the reports of all nodes at rank 0, and decides whether the run must end. Thread-safe: gRPC's threads pass
// reports, and the control thread calls look().
class Hub {
 public:
  struct Setup {
    Watch::Limits limits;
    // The listener for the streams of other nodes; nullopt if there are no other nodes.
    std::optional<Listener> listener;
    Credentials credentials;
    std::string dump_folder;  // receives the state of a stuck run
    double to_write = 5;      // seconds after which a drive that does not answer no longer delays the end of the run
    // Writes the whole file or throws Error, in a thread that may outlive the hub. Tests substitute a drive that hangs.
    std::function<void(const std::string& path, const std::string& text)> write = write_atomically;
    Note say;                                             // called in a separate thread
    std::function<void(const NodeMemory::Verdict&)> end;  // ends rank 0's node
  };
  // Memory and board must outlive it.
  Hub(NodeMemory& memory, Board& board, Setup setup);
  ~Hub();

  // Starts accepting the streams of other nodes. The calling thread starts gRPC's threads.
  void open();

  void set_names(TaskNames names);
  // Takes a report of rank 0's own node.
  void receive(const pb::NodeReport& report);
  // Call this ten times per second. `resumed`: this process was stopped until now.
  void look(bool resumed);
  void fill(pb::Status& status);
  // Asks all ranks for their state. Calls `done` when all have answered, or some seconds later with the answers so far.
  // Requests that arrive in between share the answers. Ranks are interrupted at most once every few seconds, and never
  // after rank 0 has left.
  void dump(std::function<void(pb::Dump)> done);
  // Called when rank 0 leaves. The other nodes then stop watching it.
  void leave();
  // The number of the newest request for a dump.
  std::uint32_t dump_number() const;
  // Whether look() is still being called. If rank 0's thread hangs, rank 0 must not answer the other nodes, so that
  // they notice it.
  bool is_looking() const;

 private:
  struct Collection {
    std::uint32_t number;
    double since;
    std::map<int, pb::NodeReport> answers;  // one per node
  };
  struct StateFile {  // the state of a stuck run while another thread writes it
    Watch::Finding finding;
    std::string path;
    double since;
    std::future<bool> written;
  };
  void begin_dump(double now);  // call this with the lock held
  void finish_dump(double now);
  void end(const NodeMemory::Verdict& verdict);
  void end_stalled_run(const Watch::Finding& finding);
  void finish_stuck(double now);

  NodeMemory& memory_;
  Board& board_;
  Setup setup_;
  mutable std::mutex mutex_;
  Watch watch_;
  pb::NodeOrder order_;
  std::optional<Collection> collection_;
  std::vector<std::function<void(pb::Dump)>> askers_;  // those that wait for this collection or the next one
  std::optional<StateFile> state_file_;                // used by the looking thread only
  bool ending_ = false, left_ = false;
  double next_look_ = 0, next_dump_ = 0;
  std::atomic<double> looked_;
  MessageThread messages_;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<ConnectionLimiter> limiter_;
};

// Seconds on the steady clock.
double steady_seconds();

}  // namespace strata::launcher::control
