#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/files/descriptor.h"

namespace strata::launcher::control {

struct HostPort {
  std::string host;
  int port = 0;
};
// Parses "HOST:PORT" or "[ADDRESS]:PORT".
HostPort host_and_port(std::string_view text);
// Whether every address of the host is a loopback address. Throws Error{usage}, naming `key`, if the host has no
// address.
bool is_loopback(const HostPort& address, std::string_view key);

// The errno of connecting to a Unix socket. 0 or EAGAIN: a process listens there; ECONNREFUSED: no process does any
// more.
int error_of_connecting(const std::filesystem::path& path);

// The port at the other end of a TCP connection; 0 if there is none.
int port_of_peer(int descriptor);

// A listening socket. Move-only. Its destructor removes the path of a Unix socket.
class Listener {
 public:
  // Replaces the socket that an ended run left. Throws Error{usage}, naming `key`, if something else is there already,
  // the path is too long, or the folder is missing.
  static Listener unix_socket(const std::filesystem::path& path, std::string_view key);
  // Port 0 means any free port. Throws Error{usage} if the port is in use or the host is not this machine.
  static Listener tcp(const HostPort& address, std::string_view key);
  ~Listener();
  Listener(Listener&&) noexcept = default;
  Listener& operator=(Listener&&) noexcept = default;

  int descriptor() const { return socket_.get(); }
  const std::filesystem::path& path() const { return path_; }
  int port() const { return port_; }

 private:
  Listener(Descriptor socket, std::filesystem::path path, int port)
      : socket_(std::move(socket)), path_(std::move(path)), port_(port) {}

  Descriptor socket_;
  std::filesystem::path path_;  // empty: none
  int port_ = 0;
};

// The proof that a connection must give, and its deadline: given(port) returns whether the connection from this port
// has given it. Called in the limiter's thread.
struct Proof {
  std::chrono::milliseconds within{0};
  std::function<bool(int port)> given;
};

// Accepts connections in its own thread, at most `most` at once. Connections beyond that are closed at once, so that a
// flood cannot use up the descriptors that the run opens its files with. A Unix socket accepts this user and root only.
// A port accepts all: a connection without proof is shut down after a while, and the oldest of these at once if a new
// one needs its place.
class ConnectionLimiter {
 public:
  using Take = std::function<void(Descriptor)>;
  ConnectionLimiter(Listener listener, std::size_t most, Take take, Proof proof = {});
  ~ConnectionLimiter();

  const Listener& listener() const { return listener_; }

 private:
  struct Connection {  // a connection that its user owns and closes
    int descriptor;
    unsigned long inode;
    int port = 0;
    // A second descriptor of the same connection, kept until it has given proof: the owner may close its own descriptor
    // at any time, and its number may then be reused for another file.
    Descriptor unproven{};
    std::chrono::steady_clock::time_point until{};
    bool leaving = false;  // it was shut down
    bool here() const;
    void shut_down();
  };
  void accept_connection();
  void look();
  bool make_place();

  Listener listener_;
  std::size_t most_;
  Take take_;
  Proof proof_;
  std::vector<Connection> connections_;
  Descriptor wake_;
  std::jthread thread_;
};

// The addresses by which others may reach this machine: those of the named interface (its name or one of its
// addresses), otherwise the addresses of all interfaces that are up, loopback last. If no interface has that name or
// address, throws Error{usage} that lists the existing ones.
std::vector<std::string> addresses_of(const std::string& interface);

// Several addresses to try, in gRPC's notation: "ipv4:10.0.0.1:5000,10.1.0.1:5000".
std::string grpc_target(const std::vector<std::string>& addresses, int port);

}  // namespace strata::launcher::control
