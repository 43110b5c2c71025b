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

// Answers GET /metrics and GET /healthz, one visitor at a time, each for a second at most. With credentials over TLS,
// to those that bring the token ("Authorization: Bearer TOKEN"); without to anyone.
class MetricsServer {
 public:
  // status: is called in its own thread.
  MetricsServer(Listener listener, const Credentials& credentials, std::function<pb::Status()> status);
  ~MetricsServer();

 private:
  class Visit;
  void answer(Descriptor guest);

  Credentials credentials_;
  std::function<pb::Status()> status_;
  std::unique_ptr<void, void (*)(void*)> tls_;
  std::unique_ptr<Doorkeeper> door_;
};

// What is answered to a request's head: status line, headers and body. `token` empty: anyone may ask.
std::string answer_to(const std::string& head, const std::string& token, const std::function<std::string()>& metrics);

}  // namespace strata::launcher::control
