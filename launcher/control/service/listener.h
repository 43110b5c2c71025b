#pragma once
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

// Lets connections in, in a thread of its own, and no more than `most` at once: what comes beyond is closed at once, so
// that no flood takes the descriptors that the run opens its files with. Of a Unix socket only this user's come in, and
// root's.
class Doorkeeper {
 public:
  using Take = std::function<void(Descriptor)>;
  Doorkeeper(Listener listener, std::size_t most, Take take);
  ~Doorkeeper();

  const Listener& listener() const { return listener_; }

 private:
  struct Guest {  // a connection that somebody else owns and closes
    int descriptor;
    unsigned long inode;
    bool here() const;
  };
  void let_in();

  Listener listener_;
  std::size_t most_;
  Take take_;
  std::vector<Guest> guests_;
  Descriptor wake_;
  std::jthread thread_;
};

}  // namespace strata::launcher::control
