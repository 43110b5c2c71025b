#pragma once
#include <filesystem>
#include <string>

namespace strata::launcher::control {

// The address of a run's service, as stated in checkpoint.dir/control.json.
struct ServiceAddress {
  std::string host;     // the name of rank 0's machine
  int pid = 0;          // the process ID of rank 0
  std::string socket;   // empty: none
  std::string address;  // HOST:PORT; empty: none
  bool tls = false;

  // The address in gRPC's notation.
  std::string grpc_target() const { return socket.empty() ? address : "unix:" + socket; }
};
constexpr const char* kAddressFile = "control.json";
std::string to_json(const ServiceAddress& address);
// Throws Error{failed} if the text is not a service address.
ServiceAddress parse_service_address(const std::string& text, const std::filesystem::path& path);

// The folder of this user's sockets, which no other user can enter. Creates it if it is missing. Throws Error{failed}
// if that is impossible.
std::filesystem::path socket_folder();
// Removes sockets of runs that have ended, which refuse connections.
void sweep(const std::filesystem::path& folder);

// Finds the run that TARGET names: a run's folder (or its control.json), unix:PATH or a socket's path, or HOST:PORT. An
// empty TARGET means this user's only run on this machine. Throws Error{usage} if there is no run or more than one, or
// if the file belongs to another user; Error{failed} if another user can enter the folder of sockets.
ServiceAddress find_service(const std::string& target);

}  // namespace strata::launcher::control
