#pragma once
#include <string>

#include "base/files/descriptor.h"
#include "base/json_writer.h"

namespace strata::launcher {

// What two nodes reach over one TCP connection.
struct LinkSpeed {
  double gbit_per_s = 0;    // of the slower direction
  double microseconds = 0;  // there and back, the median
};
// "gbit_per_s":..,"microseconds":..
JsonObject json_of(const LinkSpeed& speed);

// The listening end of one measurement: takes the first connection that begins with the token, and no other, so that
// a port which is open for some seconds serves nobody else.
class LinkListener {
 public:
  // Throws Error{failed} if no port can be had.
  explicit LinkListener(std::string token);
  int port() const { return port_; }
  // Returns when one measurement is done, or after so many seconds.
  void serve_one(double seconds);

 private:
  std::string token_;
  Descriptor socket_;
  int port_ = 0;
};

// The other end. Throws Error{failed} with address and the system's reason.
LinkSpeed measure_link(const std::string& address, int port, const std::string& token);

}  // namespace strata::launcher
