#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/files/descriptor.h"
#include "launcher/control/control.pb.h"
#include "launcher/control/service/credentials.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// Rank 0's end of the streams: takes what nodes tell, and answers with the newest order: at once if that is new, else
// now and then, so that nodes hear of it. Over TLS with the run's own certificate on both ends; whoever does not have
// that, or does not know the run's secret, is refused.
class NodeServer {
 public:
  struct Callbacks {                                  // called in gRPC's threads
    std::function<bool(const pb::NodeReport&)> told;  // false: nobody looks at it, and it is not answered
    std::function<void(int node)> broke;              // the stream ended without a farewell
  };
  // answer_every: seconds. From here on the process has one arena of malloc, so that 512 streams stay within 64 MiB.
  NodeServer(const Credentials& credentials, int nodes, double answer_every, Callbacks callbacks);
  ~NodeServer();

  // The connection is its own from now on. Any thread.
  void adopt(Descriptor connection);
  // What nodes are told from now on, and all that are connected at once.
  void order(const pb::NodeOrder& order);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A node's end: one stream to rank 0, made again whenever it breaks.
class NodeStream {
 public:
  // `target`: as gRPC names rank 0's addresses. ordered: is called in gRPC's threads, with each order.
  NodeStream(const std::string& target, const Credentials& credentials,
             std::function<void(const pb::NodeOrder&)> ordered);
  ~NodeStream();

  // Sends it, or what is told after it: never waits.
  void tell(const pb::NodeReport& report);
  // The last word: waits until rank 0 has read it, for half a second at most.
  void leave(pb::NodeReport report);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
