#pragma once
#include <string>

#include "base/files/descriptor.h"
#include "base/json/json_writer.h"

namespace strata::launcher {

// The speed of one TCP connection between two nodes.
struct LinkSpeed {
  double gbit_per_s = 0;    // the slower direction's
  double microseconds = 0;  // median round trip
};
// Members "gbit_per_s" and "microseconds".
JsonObject json_of(const LinkSpeed& speed);

// The listening end of one measurement. It serves the first connection that begins with the token and refuses all
// others, so that the port, which is open for a few seconds, serves nobody else.
class LinkListener {
 public:
  // Throws Error{failed} if no port can be opened.
  explicit LinkListener(std::string token);
  int port() const { return port_; }
  // Returns after one measurement, or after that many seconds.
  void serve_one(double seconds);

 private:
  std::string token_;
  Descriptor socket_;
  int port_ = 0;
};

// The connecting end. Throws Error{failed} with the address and the system's reason.
LinkSpeed measure_link(const std::string& address, int port, const std::string& token);

}  // namespace strata::launcher
