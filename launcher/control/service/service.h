#pragma once
// launcher/control/service/ is what people and tools reach: the gRPC service (here), where it listens, whom it lets in,
// and Prometheus' metrics.
#include <functional>
#include <memory>

#include "base/files/descriptor.h"
#include "launcher/control/board.h"
#include "launcher/control/service/credentials.h"

namespace strata::launcher::control {

// The gRPC service for people and tools (Run in control.proto), with health and reflection, over connections that it is
// handed. Its threads are started by the thread that makes it, and inherit how quiet that is. All that clients can do
// is bounded: calls under way, the size of a message, the memory of all of them.
class Service {
 public:
  // What it asks others for, in its own threads.
  struct Sources {
    std::function<void(pb::Status&)> fill_ranks;
    // Collects the state of all ranks; `done` is called once, in any thread.
    std::function<void(std::function<void(pb::Dump)> done)> dump;
    bool can_save = false;  // there is a checkpoint.dir
  };
  // The board outlives it.
  Service(Board& board, const Credentials& credentials, Sources sources);
  ~Service();  // ends every call

  // The connection is its own from now on. Any thread.
  void adopt(Descriptor connection);
  // Whether a call with the token, if one is needed, has come over the connection from this port. Any thread.
  bool believes(int port) const;
  // Some ten times per second: tells those who wait what has happened.
  void pump();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
