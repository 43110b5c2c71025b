#pragma once
// launcher/control/service/ is what people and tools reach: the gRPC service (here), where it listens, whom it lets in,
// and Prometheus' metrics.
#include <functional>
#include <memory>

#include "base/files/descriptor.h"
#include "launcher/control/board.h"
#include "launcher/control/service/credentials.h"

namespace strata::launcher::control {

// The gRPC service for people and tools (Run in control.proto), with health and reflection, over connections that are
// handed to it. Its threads are started by the constructing thread and inherit its priority and signal mask. Everything
// a client can do is bounded: calls in progress, message sizes, and memory.
class Service {
 public:
  // The service's requests to other parts, made in its own threads.
  struct Sources {
    std::function<void(pb::Status&)> fill_ranks;
    // Collects the state of all ranks. `done` is called once, in any thread.
    std::function<void(std::function<void(pb::Dump)> done)> dump;
    bool can_save = false;  // there is a checkpoint.dir
  };
  // The board must outlive it.
  Service(Board& board, const Credentials& credentials, Sources sources);
  ~Service();  // ends every call

  // Takes over the connection. Callable from any thread.
  void adopt(Descriptor connection);
  // Whether the connection from this port has carried a call with the token, if one is needed. Callable from any
  // thread.
  bool believes(int port) const;
  // Answers callers whose request has been fulfilled. Call it about ten times per second.
  void pump();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
