#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/files/descriptor.h"
#include "launcher/control/control.pb.h"
#include "launcher/control/service/credentials.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// Rank 0's end of the streams. It receives nodes' reports and answers with the newest order: immediately if the order
// is new, otherwise from time to time, so that nodes hear from rank 0. Both ends use TLS with the run's own
// certificate. A peer without this certificate or without the run's secret is refused.
class NodeServer {
 public:
  struct Callbacks {                                      // called in gRPC's threads
    std::function<bool(const pb::NodeReport&)> received;  // false: the hub has left, so no answer is sent
    std::function<void(int node)> broke;                  // the stream ended without a goodbye
  };
  // answer_every: seconds. From now on the process has only one malloc arena, so that 512 streams stay within 64 MiB.
  NodeServer(const Credentials& credentials, int nodes, double answer_every, Callbacks callbacks);
  ~NodeServer();

  // Takes over the connection. Any thread may call it.
  void adopt(Descriptor connection);
  // Sets the order that nodes receive from now on. Connected nodes receive it immediately.
  void order(const pb::NodeOrder& order);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A node's end of its stream to rank 0. It opens the stream again whenever it breaks.
class NodeStream {
 public:
  // `target`: rank 0's addresses in gRPC's notation. ordered: called with each order, in gRPC's threads.
  NodeStream(const std::string& target, const Credentials& credentials,
             std::function<void(const pb::NodeOrder&)> ordered);
  ~NodeStream();

  // Sends this report, or a newer one that has replaced it. Never waits.
  void send(const pb::NodeReport& report);
  // Sends the last report and waits for at most half a second until rank 0 has read it.
  void leave(pb::NodeReport report);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
