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
// Whether every address of the host is a loopback address. Throws Error{usage} that names `key` if it has none.
bool is_loopback(const HostPort& address, std::string_view key);

// Connects to a Unix socket and returns errno. 0 or EAGAIN: a process listens there. ECONNREFUSED: no process listens
// there any more.
int error_of_connecting(const std::filesystem::path& path);

// The port at the other end of a TCP connection; 0 if there is none.
int port_of_peer(int descriptor);

// A listening socket. Move-only. The destructor removes the path of a Unix socket.
class Listener {
 public:
  // Replaces a socket left by a run that has ended. Throws Error{usage} that names `key` if something else is already
  // there, the path is too long, or the folder is missing.
  static Listener unix_socket(const std::filesystem::path& path, std::string_view key);
  // Port 0 stands for any free port. Throws Error{usage} if the port is in use or the host is not this machine.
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

// The proof that a connection must give, and the deadline for it: given(port) returns whether the connection from this
// port has given it. Called in the limiter's thread.
struct Proof {
  std::chrono::milliseconds within{0};
  std::function<bool(int port)> given;
};

// Accepts connections in its own thread, at most `most` at the same time. Further connections are closed immediately,
// so that a flood cannot use up the descriptors with which the run opens its files. A Unix socket accepts only this
// user and root. A port accepts everyone: a connection without proof is shut down after a while, and the oldest of
// these is shut down immediately if a new one needs its place.
class ConnectionLimiter {
 public:
  using ConnectionHandler = std::function<void(Descriptor)>;
  ConnectionLimiter(Listener listener, std::size_t most, ConnectionHandler take, Proof proof = {});
  ~ConnectionLimiter();

  const Listener& listener() const { return listener_; }

 private:
  struct Connection {  // a connection that is owned and closed by its user
    int descriptor;
    unsigned long inode;
    int port = 0;
    // A second descriptor of the same connection, kept until the connection has given proof, because the owner may
    // close its own descriptor at any time, and its number may then be reused for another file.
    Descriptor unproven{};
    std::chrono::steady_clock::time_point until{};
    bool leaving = false;  // it has been shut down
    bool here() const;
    void shut_down();
  };
  void accept_connection();
  void look();
  bool make_place();

  Listener listener_;
  std::size_t most_;
  ConnectionHandler take_;
  Proof proof_;
  std::vector<Connection> connections_;
  Descriptor wake_;
  std::jthread thread_;
};

// The addresses by which others may reach this machine: those of the named interface (by its name or one of its
// addresses), otherwise those of all interfaces that are up, loopback last. If no interface has that name or address,
// throws Error{usage} that lists the existing ones.
std::vector<std::string> addresses_of(const std::string& interface);

// Several addresses to try, in gRPC's notation: "ipv4:10.0.0.1:5000,10.1.0.1:5000".
std::string grpc_target(const std::vector<std::string>& addresses, int port);

}  // namespace strata::launcher::control
