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
// Of "HOST:PORT" or "[ADDRESS]:PORT".
HostPort host_and_port(std::string_view text);
// Whether every address of the host is this machine's own alone. Throws Error{usage} if it has none; `key` names it.
bool is_loopback(const HostPort& address, std::string_view key);

// The errno of a connection to a Unix socket; 0 or EAGAIN: somebody listens there, ECONNREFUSED: nobody does any more.
int error_of_connecting(const std::filesystem::path& path);

// The port that the other end of a TCP connection comes from; 0: it has none.
int port_of_peer(int descriptor);

// A socket that others connect to. Move-only; the path of a Unix socket goes with it.
class Listener {
 public:
  // Takes the place of one that an ended run left. Throws Error{usage} naming `key`: something else is there already,
  // the path is too long, the folder is missing.
  static Listener unix_socket(const std::filesystem::path& path, std::string_view key);
  // Port 0: any free one. Throws Error{usage}: the port is in use, the host is not this machine's.
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

// What a connection has to give within a time, if anything: by the one from this port. Asked in the door's thread.
struct Proof {
  std::chrono::milliseconds within{0};
  std::function<bool(int port)> given;
};

// Lets connections in, in a thread of its own, and no more than `most` at once: what comes beyond is closed at once, so
// that no flood takes the descriptors that the run opens its files with. Of a Unix socket only this user's come in, and
// root's. Of a port all do: those that `proof` asks after and does not know have to leave after a while, and the oldest
// of them at once if the place is needed.
class Doorkeeper {
 public:
  using Take = std::function<void(Descriptor)>;
  Doorkeeper(Listener listener, std::size_t most, Take take, Proof proof = {});
  ~Doorkeeper();

  const Listener& listener() const { return listener_; }

 private:
  struct Guest {  // a connection that somebody else owns and closes
    int descriptor;
    unsigned long inode;
    int port = 0;
    // Of the same connection, until it has given proof: the owner may close its own descriptor at any time, and its
    // number be another file's.
    Descriptor unproven{};
    std::chrono::steady_clock::time_point until{};
    bool leaving = false;  // it was shown out
    bool here() const;
    void show_out();
  };
  void let_in();
  void look();
  bool make_place();

  Listener listener_;
  std::size_t most_;
  Take take_;
  Proof proof_;
  std::vector<Guest> guests_;
  Descriptor wake_;
  std::jthread thread_;
};

// Addresses of this machine that others may reach it by: those of the interface that is named (by its name or one of
// its addresses), else of all that are up, loopback last. Throws Error{usage} naming what there is if there is no such
// one.
std::vector<std::string> addresses_of(const std::string& interface);

// "ipv4:10.0.0.1:5000,10.1.0.1:5000": several places to try, as gRPC names them.
std::string grpc_target(const std::vector<std::string>& addresses, int port);

}  // namespace strata::launcher::control
