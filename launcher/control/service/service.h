#pragma once
// launcher/control/service/ is the interface for users and tools: the gRPC service and Prometheus' metrics (here),
// their addresses, and access control.
#include <functional>
#include <memory>
#include <string>

#include "base/files/descriptor.h"
#include "launcher/control/board.h"
#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"

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
  bool is_authenticated(int port) const;
  // Answers callers whose request has been fulfilled. Call it about ten times per second.
  void pump();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The status in Prometheus' text format. docs/formats.md lists the names and units.
std::string metrics_text(const pb::Status& status);

// Answers GET /metrics and GET /healthz in its own thread. Several clients are served at once, each for at most a
// second; if there are many, those whose request is incomplete are closed first. With credentials, /metrics is served
// over TLS to clients with the token ("Authorization: Bearer TOKEN") and, if there is a client_ca, a certificate that
// it signed; without credentials, to every client. /healthz answers every client while the run is alive.
class MetricsServer {
 public:
  // status: called in the server's thread. Throws Error{usage} if OpenSSL refuses the credentials.
  MetricsServer(Listener listener, const Credentials& credentials, std::function<pb::Status()> status);
  ~MetricsServer();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The answer to a request's head: status line, headers and body. `token`: empty if none is needed. `certified`: the
// client has shown the certificate that it needs, or needs none. /healthz is always answered.
std::string answer_to(const std::string& head, const std::string& token, const std::function<std::string()>& metrics,
                      bool certified = true);

}  // namespace strata::launcher::control
