#include "launcher/control/service/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/host/host.h"
#include "launcher/control/watch/background_thread.h"

namespace strata::launcher::control {
namespace {

constexpr int kBacklog = 1024;  // beyond it, the system drops handshakes, and their clients wait for a second or longer
constexpr int kListenLook = 200;      // ms between checks of which connections have been closed or have given proof
constexpr std::size_t kLeaving = 16;  // connections that were shut down but that their owner has not closed yet

AddressList require_host(const HostPort& address, std::string_view key) {
  AddressLookup found = look_up(address.host, address.port, AI_NUMERICSERV);
  if (!found.addresses)
    fail(Exit::usage, "{}: the host {} is not found ({}): give an address, or a name that this machine knows", key,
         address.host, found.why);
  return std::move(found.addresses);
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 in{};
  std::memcpy(&in, &address, sizeof in);
  return IN6_IS_ADDR_LOOPBACK(&in.sin6_addr);
}

// Empty if the path is too long.
std::optional<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof out.sun_path) return std::nullopt;
  path.native().copy(out.sun_path, sizeof out.sun_path - 1);
  return out;
}

}  // namespace

HostPort host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  STRATA_CHECK(colon != std::string_view::npos);
  HostPort out;
  out.host = text.substr(0, colon);
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), out.port);
  return out;
}

bool is_loopback(const HostPort& address, std::string_view key) {
  const AddressList found = require_host(address, key);
  for (const addrinfo* a = found.get(); a; a = a->ai_next)
    if (!is_loopback(*a->ai_addr)) return false;
  return true;
}

int error_of_connecting(const std::filesystem::path& path) {
  const auto address = address_of(path);
  if (!address) return ENAMETOOLONG;
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe.get() < 0) return errno;
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 ? 0 : errno;
}

Listener Listener::unix_socket(const std::filesystem::path& path, std::string_view key) {
  // The socket is bound under another name and gets this one only when it listens. So a socket that is found here and
  // refuses connections was left by a run that has ended.
  std::filesystem::path own = path;
  own += fmt::format(".{}", getpid());
  const auto address = address_of(own);
  if (!address)
    fail(Exit::usage, "{}: the path {} is too long for a socket (at most {} bytes): name a shorter one", key,
         path.string(), sizeof(sockaddr_un::sun_path) - 1 - (own.native().size() - path.native().size()));
  const auto refuse = [&](int error) {
    fail(Exit::usage, "{}: no socket can be created at {}: {}", key, path.string(), std::strerror(error));
  };
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // No other user may connect, even if others can enter the folder.
  const mode_t mask = umask(0177);
  const int bound =
      socket.get() < 0 ? -1 : bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int error = errno;
  umask(mask);
  if (bound != 0) refuse(error);
  struct Removed {
    const std::filesystem::path& path;
    ~Removed() { (void)::unlink(path.c_str()); }
  } const at_the_end{own};
  if (listen(socket.get(), kBacklog) != 0) refuse(errno);
  for (int tries = 0; link(own.c_str(), path.c_str()) != 0; ++tries) {
    if (errno != EEXIST) refuse(errno);
    std::error_code ignored;
    if (tries > 0 || !std::filesystem::is_socket(std::filesystem::symlink_status(path, ignored)) ||
        error_of_connecting(path) != ECONNREFUSED)
      fail(Exit::usage, "{}: {} exists already, but is not the socket of an ended run: name another path", key,
           path.string());
    (void)::unlink(path.c_str());
  }
  return {std::move(socket), path, 0};
}

int port_of_peer(int descriptor) {
  sockaddr_in6 peer{};  // for either family, because the port is at the same offset
  socklen_t size = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return 0;
  return peer.sin6_family == AF_INET || peer.sin6_family == AF_INET6 ? ntohs(peer.sin6_port) : 0;
}

Listener Listener::tcp(const HostPort& address, std::string_view key) {
  const AddressList found = require_host(address, key);
  int error = 0;
  for (const addrinfo* a = found.get(); a; a = a->ai_next) {
    Descriptor socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket.get() >= 0) (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.get() < 0 || bind(socket.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        ::listen(socket.get(), kBacklog) != 0) {
      error = errno;
      continue;
    }
    sockaddr_in6 bound{};  // for either family, because the port is at the same offset
    socklen_t size = sizeof bound;
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) bound = {};
    return {std::move(socket), {}, ntohs(bound.sin6_port)};
  }
  fail(Exit::usage, "{}: nothing can listen at {}:{}: {}; name another port, or an address of this machine", key,
       address.host, address.port, std::strerror(error));
}

Listener::~Listener() {
  if (socket_.get() >= 0 && !path_.empty()) (void)::unlink(path_.c_str());
}

bool ConnectionLimiter::Connection::here() const {
  struct stat now {};
  return fstat(descriptor, &now) == 0 && now.st_ino == inode;
}

void ConnectionLimiter::Connection::shut_down() {
  (void)shutdown(unproven.get(), SHUT_RDWR);
  unproven = Descriptor();
  leaving = true;
}

ConnectionLimiter::ConnectionLimiter(Listener listener, std::size_t most, ConnectionHandler take, Proof proof)
    : listener_(std::move(listener)),
      most_(most),
      take_(std::move(take)),
      proof_(std::move(proof)),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  thread_ = start_background_thread("strata-accept", [this](const std::stop_token& stop) {
    pollfd waits[] = {{listener_.descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    while (!stop.stop_requested()) {
      const bool waiting = std::any_of(connections_.begin(), connections_.end(),
                                       [](const Connection& connection) { return connection.unproven.get() >= 0; });
      const int ready = poll(waits, 2, waiting ? kListenLook : -1);
      if (stop.stop_requested()) break;
      look();
      if (ready > 0 && waits[0].revents != 0) accept_connection();
    }
  });
}

ConnectionLimiter::~ConnectionLimiter() {
  thread_.request_stop();
  (void)eventfd_write(wake_.get(), 1);
}

void ConnectionLimiter::look() {
  std::erase_if(connections_, [](const Connection& known) { return !known.here(); });
  const auto now = std::chrono::steady_clock::now();
  for (Connection& connection : connections_) {
    if (connection.unproven.get() < 0) continue;
    if (proof_.given(connection.port))
      connection.unproven = Descriptor();
    else if (now >= connection.until)
      connection.shut_down();
  }
}

// Connections are in order of arrival. A connection that was shut down keeps its descriptor until its owner closes it.
bool ConnectionLimiter::make_place() {
  // If many connections arrive together, their owner may be late in closing those that were shut down.
  const auto leaves = [](const Connection& connection) { return connection.leaving; };
  for (int i = 0;
       i < kListenLook && connections_.size() >= most_ + kLeaving && std::ranges::any_of(connections_, leaves); ++i) {
    usleep(1000);
    std::erase_if(connections_, [](const Connection& known) { return !known.here(); });
  }
  if (connections_.size() < most_) return true;
  if (connections_.size() >= most_ + kLeaving) return false;
  const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                   [](const Connection& connection) { return connection.unproven.get() >= 0; });
  if (oldest == connections_.end()) return false;
  oldest->shut_down();
  return true;
}

void ConnectionLimiter::accept_connection() {
  Descriptor connection(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.get() < 0) {
    // No descriptor is free, so the connection stays in the queue. The sleep prevents a busy loop.
    if (errno != EAGAIN && errno != ECONNABORTED) usleep(100'000);
    return;
  }
  if (!make_place()) return;
  Connection known{connection.get(), 0};
  if (listener_.path().empty()) {
    if (proof_.given) {
      known.port = port_of_peer(connection.get());
      known.unproven = Descriptor(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
      known.until = std::chrono::steady_clock::now() + proof_.within;
      if (known.unproven.get() < 0) return;
    }
    const int on = 1;
    (void)setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  } else {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != 0 && peer.uid != geteuid()))
      return;
  }
  struct stat status {};
  if (fstat(connection.get(), &status) != 0) return;
  known.inode = status.st_ino;
  connections_.push_back(std::move(known));
  take_(std::move(connection));
}

std::vector<std::string> addresses_of(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail(Exit::failed, "the network interfaces of this machine cannot be listed");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
  std::vector<std::string> named, usual, loopback, known;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    // IPv6 is left out, because link-local addresses need a scope that differs between nodes, and other IPv6 addresses
    // are rare without IPv4.
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_UP) == 0) continue;
    sockaddr_in in{};
    std::memcpy(&in, at->ifa_addr, sizeof in);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (!inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size())) continue;
    const std::string address = text.data();
    known.push_back(fmt::format("{} ({})", at->ifa_name, address));
    if (interface == at->ifa_name || interface == address) named.push_back(address);
    ((at->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : usual).push_back(address);
  }
  if (interface.empty()) {
    usual.insert(usual.end(), loopback.begin(), loopback.end());
    return usual;
  }
  if (named.empty())
    fail(Exit::usage, "control.interface = \"{}\": this machine has no such interface with an IPv4 address: it has {}",
         interface, fmt::join(known, ", "));
  return named;
}

std::string grpc_target(const std::vector<std::string>& addresses, int port) {
  std::string out = "ipv4:";
  for (std::size_t i = 0; i < addresses.size(); ++i)
    out += fmt::format("{}{}:{}", i == 0 ? "" : ",", addresses[i], port);
  return out;
}

}  // namespace strata::launcher::control
