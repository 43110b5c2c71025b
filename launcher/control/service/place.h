#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace strata::launcher::control {

// How the service of a run is reached, as its checkpoint.dir/control.json says it.
struct Place {
  std::string host;     // the name of rank 0's machine
  int pid = 0;          // of rank 0
  std::string socket;   // empty: none
  std::string address;  // HOST:PORT; empty: none
  bool tls = false;

  // What gRPC calls it.
  std::string target() const { return socket.empty() ? address : "unix:" + socket; }
};
constexpr const char* kPlaceFile = "control.json";
std::string to_json(const Place& place);
// Throws Error{failed} if the text is none.
Place parse_place(const std::string& text, const std::filesystem::path& path);

// The folder of this user's sockets, which nobody else can enter: made if it is not there. Throws Error{failed} in one
// sentence if that cannot be had.
std::filesystem::path socket_folder();
// Removes the sockets of runs that have ended: those whose connections are refused.
void sweep(const std::filesystem::path& folder);

// What TARGET names: a run's folder (or its control.json), unix:PATH or a socket's path, HOST:PORT; empty: the only run
// of this user on this machine. Throws Error{usage} if there is none, or more than one, or the file is another user's;
// Error{failed} if another user can enter the folder of sockets.
Place find_place(const std::string& target);

}  // namespace strata::launcher::control
