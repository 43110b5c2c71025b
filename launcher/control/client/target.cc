#include "launcher/control/client/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/host_name.h"
#include "launcher/control/service/listener.h"
#include "runtime/recipe/value.h"

namespace strata::launcher::control {
namespace {

namespace fs = std::filesystem;

// Whether somebody listens there.
bool answers(const fs::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.native().size() >= sizeof address.sun_path) return false;
  socket.native().copy(address.sun_path, sizeof address.sun_path - 1);
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
}

std::vector<fs::path> sockets_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".sock" && fs::is_socket(at->status())) out.push_back(at->path());
  std::sort(out.begin(), out.end());
  return out;
}

fs::path folder_name() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime == '/') {
    std::error_code ignored;
    if (fs::is_directory(runtime, ignored)) return fs::path(runtime) / "strata";
  }
  return fs::path("/tmp") / fmt::format("strata-{}", geteuid());
}

}  // namespace

std::string to_json(const Place& place) {
  using runtime::json_string;
  return fmt::format("{{\"host\": {}, \"pid\": {}, \"socket\": {}, \"address\": {}, \"tls\": {}}}\n",
                     json_string(place.host), place.pid, json_string(place.socket), json_string(place.address),
                     place.tls);
}

Place parse_place(const std::string& text, const fs::path& path) {
  try {
    simdjson::dom::parser parser;
    const simdjson::dom::element root = parser.parse(text);
    Place out;
    out.host = std::string(root["host"].get_string().value());
    out.pid = static_cast<int>(root["pid"].get_int64().value());
    out.socket = std::string(root["socket"].get_string().value());
    out.address = std::string(root["address"].get_string().value());
    out.tls = root["tls"].get_bool().value();
    if (out.socket.empty() && out.address.empty()) fail(Exit::failed, "{} names no place", path.string());
    return out;
  } catch (const simdjson::simdjson_error& error) {
    fail(Exit::failed, "{} is not what a run writes there: {}", path.string(), error.what());
  }
}

fs::path socket_folder() {
  const fs::path folder = folder_name();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    fail(Exit::failed, "{} cannot be made: {}", folder.string(), std::strerror(errno));
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & 077) != 0)
    fail(Exit::failed, "{} is not a folder that this user alone can enter", folder.string());
  return folder;
}

void sweep(const fs::path& folder) {
  for (const fs::path& socket : sockets_in(folder))
    if (!answers(socket)) (void)::unlink(socket.c_str());
}

Place find_place(const std::string& target) {
  constexpr std::string_view kUnix = "unix:";
  if (target.starts_with(kUnix)) return {host_name(), 0, target.substr(kUnix.size()), "", false};
  if (target.empty()) {
    std::vector<fs::path> found = sockets_in(folder_name());
    std::erase_if(found, [](const fs::path& socket) { return !answers(socket); });
    if (found.empty())
      fail(Exit::usage,
           "no run of this user is found on {} (no socket in {} answers): name its checkpoint.dir, unix:PATH or "
           "HOST:PORT",
           host_name(), folder_name().string());
    if (found.size() > 1) {
      std::vector<std::string> names;
      for (const fs::path& socket : found) names.push_back("unix:" + socket.string());
      fail(Exit::usage, "{} runs of this user are found here: name one of {}, or its checkpoint.dir", names.size(),
           fmt::join(names, ", "));
    }
    return {host_name(), 0, found.front().string(), "", false};
  }
  std::error_code ignored;
  const fs::path path = target;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_socket(status)) return {host_name(), 0, fs::absolute(path).string(), "", false};
  if (fs::is_directory(status) || path.filename() == kPlaceFile) {
    const fs::path file = fs::is_directory(status) ? path / kPlaceFile : path;
    std::ifstream in(file);
    if (!in)
      fail(Exit::usage, "{} is not there: no run writes to that folder now, or it runs with control.listen = off",
           file.string());
    return parse_place({std::istreambuf_iterator<char>(in), {}}, file);
  }
  if (target.find(':') == std::string::npos || target.find('/') != std::string::npos)
    fail(Exit::usage, "{} is no folder of a run, no socket, and not HOST:PORT", target);
  return {"", 0, "", target, !is_loopback(host_and_port(target), "TARGET")};
}

}  // namespace strata::launcher::control
