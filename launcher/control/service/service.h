#pragma once
// launcher/control/service/ is the interface for users and tools: the gRPC service and the Prometheus metrics (here),
// their addresses, and access control.
#include <functional>
#include <memory>
#include <string>

#include "base/files/descriptor.h"
#include "launcher/control/board.h"
#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"

namespace strata::launcher::control {

// The gRPC service for users and tools (Run in control.proto), with health and reflection, over connections that are
// handed to it. The constructing thread starts its threads, which inherit the priority and signal mask of that thread.
// Everything that a client can do is bounded: calls in progress, message sizes, and memory.
class Service {
 public:
  // The service's requests to other parts, which its own threads make.
  struct Sources {
    std::function<void(pb::Status&)> fill_ranks;
    // Collects the state of all ranks. Calls `done` once, in any thread.
    std::function<void(std::function<void(pb::Dump)> done)> dump;
    bool can_save = false;  // whether there is a checkpoint.dir
  };
  // The board must outlive it.
  Service(Board& board, const Credentials& credentials, Sources sources);
  ~Service();  // ends every call

  // Takes over the connection. Any thread may call it.
  void adopt(Descriptor connection);
  // Whether the connection from this port has carried a call with the token, if one is needed. Any thread.
  bool is_authenticated(int port) const;
  // Answers callers whose requests have been fulfilled. Call this about ten times per second.
  void pump();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The status in Prometheus' text format. docs/formats.md lists the names and units.
std::string metrics_text(const pb::Status& status);

// Answers GET /metrics and GET /healthz in its own thread. It serves several clients at the same time, each for at most
// a second; if there are many, it first closes connections with an incomplete request. With credentials, /metrics is
// served over TLS to clients with the token ("Authorization: Bearer TOKEN") and, if there is a client_ca, a certificate
// that it signed; without credentials, /metrics is served to every client. /healthz answers every client while the run
// is alive.
class MetricsServer {
 public:
  // status: called in the server's thread. Throws Error{usage} if OpenSSL refuses the credentials.
  MetricsServer(Listener listener, const Credentials& credentials, std::function<pb::Status()> status);
  ~MetricsServer();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The answer to a request's head: status line, headers and body. `token`: empty if no token is needed. `certified`: the
// client has shown the certificate that it needs, or needs none. /healthz is always answered.
std::string answer_to(const std::string& head, const std::string& token, const std::function<std::string()>& metrics,
                      bool certified = true);

}  // namespace strata::launcher::control
