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

// Where and as whom a client comes. PEM texts and the secret; empty: none.
struct Visit {
  std::string target;  // as gRPC names it: "unix:PATH", "HOST:PORT"
  bool tls = false;
  std::string ca, cert, key, token;
  std::chrono::seconds silence{20};  // then the other end is asked whether it is there, and has as long to answer
  bool plain = false;                // it is known to speak no TLS: a socket, or what a run says of itself
};

// The run does not answer, or has ended.
class Unavailable : public Error {
  using Error::Error;
};

// A client of the service Run. Calls throw Error{failed} with the service's own words, Unavailable if there is none, or
// Error{usage} if it refuses the token or the two do not agree on TLS.
class Client {
 public:
  explicit Client(const Visit& visit);
  ~Client();

  pb::Status status();
  pb::Plan plan();
  pb::CheckpointReply checkpoint();  // once durable
  pb::StopReply stop(bool at_once);
  pb::Dump dump();
  // Calls step(s) for each, until the run ends in good order or step returns false. Returns whether the run ended.
  bool watch(int last, const std::function<bool(const pb::Step&)>& step);
  // Ends watch(), now and whenever it is called; any thread.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
