#pragma once
#include <functional>
#include <memory>
#include <string>

#include "launcher/control/board.h"
#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"

namespace strata::launcher::control {

// The status in Prometheus' text format. docs/formats.md lists the names and units.
std::string metrics_text(const pb::Status& status);

// Answers GET /metrics and GET /healthz in its own thread. Several clients are served at once, each for at most a
// second; if there are many, those whose request is incomplete are closed first. With credentials, /metrics is served
// over TLS to clients with the token ("Authorization: Bearer TOKEN") and, if there is a client_ca, a certificate that
// it signed; without credentials, to anyone. /healthz tells anyone that the run is alive.
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
