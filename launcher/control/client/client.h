#pragma once
// launcher/control/client/ is the other end of a run's service: its calls (here), `strata ctl` and `strata top`.
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "launcher/control/control.pb.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// What a client connects to and with which credentials: PEM texts and the secret, each empty if there is none.
struct Target {
  std::string address;  // in gRPC's notation: "unix:PATH", "HOST:PORT"
  bool tls = false;
  std::string ca, cert, key, token;
  // After this silence the other end is pinged, and has the same time to answer.
  std::chrono::seconds silence{20};
  bool plain = false;  // the other end is known not to use TLS: it is a socket, or the run itself says so
};

// The run does not answer, or has ended.
class Unavailable : public Error {
  using Error::Error;
};

// A client of the service Run. Calls throw Error{failed} with the service's own message, Unavailable if there is no
// service, or Error{usage} if the service refuses the token or the two sides disagree about TLS.
class Client {
 public:
  explicit Client(const Target& target);
  ~Client();

  pb::Status status();
  pb::Plan plan();
  pb::CheckpointReply checkpoint();  // returns when the checkpoint is durable
  pb::StopReply stop(bool at_once);
  pb::Dump dump();
  // Calls step(s) for each step until the run ends in good order or step returns false. Returns whether the run ended.
  bool watch(int last, const std::function<bool(const pb::Step&)>& step);
  // Ends watch(), both a call in progress and any later one. Callable from any thread.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
