#pragma once
#include <functional>
#include <memory>
#include <string>

#include "launcher/control/control.pb.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// Where and as whom a client comes. PEM texts and the secret; empty: none.
struct Visit {
  std::string target;  // as gRPC names it: "unix:PATH", "HOST:PORT"
  bool tls = false;
  std::string ca, cert, key, token;
};

// A client of the service Run. Calls throw Error{failed} with the service's own words, or Error{usage} if it refuses
// the token, or the two do not agree on TLS.
class Client {
 public:
  explicit Client(const Visit& visit);
  ~Client();

  pb::Status status();
  pb::Plan plan();
  pb::CheckpointReply checkpoint();  // once durable
  pb::StopReply stop(bool at_once);
  pb::Dump dump();
  // Calls step(s) for each, until the run ends or step returns false. Returns whether the run ended.
  bool watch(int last, const std::function<bool(const pb::Step&)>& step);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
