#pragma once
#include <functional>
#include <memory>
#include <string>

#include "launcher/control/board.h"
#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"

namespace strata::launcher::control {

// The status as Prometheus reads it (its text format): names with units, docs/formats.md.
std::string metrics_text(const pb::Status& status);

// Answers GET /metrics and GET /healthz in a thread of its own, to some visitors at once, each for a second at most; if
// there are many, those that have not sent a whole request yet leave for others. With credentials over TLS, to those
// that bring the token ("Authorization: Bearer TOKEN") and, if there is a client_ca, a certificate of one of its;
// without to anyone. /healthz says that the run is there, and that to anyone.
class MetricsServer {
 public:
  // status: is called in its own thread. Throws Error{usage} if OpenSSL refuses the credentials.
  MetricsServer(Listener listener, const Credentials& credentials, std::function<pb::Status()> status);
  ~MetricsServer();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// What is answered to a request's head: status line, headers and body. `token` empty: none is needed. `certified`: the
// visitor has shown the certificate that it needs, or needs none. /healthz is answered in any case.
std::string answer_to(const std::string& head, const std::string& token, const std::function<std::string()>& metrics,
                      bool certified = true);

}  // namespace strata::launcher::control
