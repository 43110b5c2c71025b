#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/host/host.h"
#include "launcher/launch/node/agent.h"
#include "launcher/median.h"

namespace strata::launcher {
namespace {

using Clock = SteadyClock;
constexpr double kSeconds = 0.3;  // per direction
constexpr int kRoundTrips = 50;
constexpr std::size_t kBlock = std::size_t{1} << 20;
// The next request of the connecting end.
constexpr char kEcho = 'e', kTake = 't', kGive = 'g', kDone = 'd';

void limit_waits(int fd, int seconds) {
  const timeval limit{seconds, 0};
  const int now = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
}

// False if the other end has closed the connection or is silent.
bool send_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}
bool receive_all(int fd, char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, bytes, size, 0);
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

// Sends blocks for kSeconds. A byte before each block announces it; a different byte ends the transfer.
bool give(int fd, std::vector<char>& block) {
  const auto start = Clock::now();
  const char more = kGive, over = kDone;
  while (seconds_since(start) < kSeconds)
    if (!send_all(fd, &more, 1) || !send_all(fd, block.data(), block.size())) return false;
  return send_all(fd, &over, 1);
}
// Receives from the other end and returns Gbit/s; 0 if it has closed the connection.
double take(int fd, std::vector<char>& block) {
  const auto start = Clock::now();
  std::size_t bytes = 0;
  for (char next = 0; receive_all(fd, &next, 1) && next == kGive; bytes += block.size())
    if (!receive_all(fd, block.data(), block.size())) return 0;
  return static_cast<double>(bytes) * 8 / seconds_since(start) / 1e9;
}

// False if another process has connected.
bool serve(int fd, const std::string& token) {
  limit_waits(fd, 5);
  std::string received(token.size(), '\0');
  if (!receive_all(fd, received.data(), received.size()) || received != token) return false;
  std::vector<char> block(kBlock);
  for (char asked = 0; receive_all(fd, &asked, 1);) {
    if (asked == kEcho && !send_all(fd, &asked, 1)) break;
    if (asked == kGive && !give(fd, block)) break;
    if (asked == kTake) {
      const double speed = take(fd, block);
      if (!send_all(fd, reinterpret_cast<const char*>(&speed), sizeof speed)) break;
    }
    if (asked == kDone) break;
  }
  return true;
}

Descriptor connect_to(const std::string& address, int port) {
  const AddressList list = look_up(address, port, AI_NUMERICHOST).addresses;
  if (!list) fail(Exit::failed, "{} is not an address", address);
  Descriptor fd(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() >= 0) limit_waits(fd.get(), 5);
  if (fd.get() < 0 || ::connect(fd.get(), list->ai_addr, list->ai_addrlen) != 0)
    fail(Exit::failed, "no connection to {} port {}: {}; open the ports above 1023 between the nodes", address, port,
         errno == EINPROGRESS ? "no answer in 5 s" : std::strerror(errno));
  return fd;
}

}  // namespace

JsonObject json_of(const LinkSpeed& speed) {
  return JsonObject()
      .add("gbit_per_s", Decimals{speed.gbit_per_s, 4})
      .add("microseconds", Decimals{speed.microseconds, 1});
}

LinkListener::LinkListener(std::string token) : token_(std::move(token)) {
  // One socket serves both address families.
  socket_ = Descriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  const int off = 0;
  socklen_t size = sizeof any;
  if (socket_.get() >= 0) ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  bool bound = socket_.get() >= 0 && ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&any), size) == 0;
  sockaddr_in any4{};
  if (!bound) {  // this machine has no IPv6
    socket_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    any4.sin_family = AF_INET;
    bound = socket_.get() >= 0 && ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&any4), sizeof any4) == 0;
  }
  if (!bound || ::listen(socket_.get(), 4) != 0 ||
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&any), &size) != 0)
    fail(Exit::failed, "no port can be opened: {}", std::strerror(errno));
  port_ = ntohs(any.sin6_port);  // at the same offset in both families
}

void LinkListener::serve_one(double seconds) {
  const auto start = Clock::now();
  for (double left; (left = seconds - seconds_since(start)) > 0;) {
    pollfd wait{socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(left * 1e3) + 1) <= 0) return;
    const Descriptor fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0) continue;
    if (serve(fd.get(), token_)) return;
  }
}

LinkSpeed measure_link(const std::string& address, int port, const std::string& token) {
  const Descriptor fd = connect_to(address, port);
  const auto require = [&](bool went_well) {
    if (!went_well) fail(Exit::failed, "the connection to {} port {} broke off", address, port);
  };
  require(send_all(fd.get(), token.data(), token.size()));
  std::vector<double> trips;
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    const auto start = Clock::now();
    char byte = kEcho;
    require(send_all(fd.get(), &byte, 1) && receive_all(fd.get(), &byte, 1));
    trips.push_back(seconds_since(start) * 1e6);
  }
  std::vector<char> block(kBlock);
  double there = 0;
  require(send_all(fd.get(), &kTake, 1) && give(fd.get(), block) &&
          receive_all(fd.get(), reinterpret_cast<char*>(&there), sizeof there));
  require(send_all(fd.get(), &kGive, 1));
  const double back = take(fd.get(), block);
  require(back > 0 && send_all(fd.get(), &kDone, 1));
  return {std::min(there, back), median_of(std::move(trips))};
}

}  // namespace strata::launcher
