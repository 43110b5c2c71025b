#include "launcher/control/service/service_address.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/host/host.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "base/number.h"
#include "launcher/control/service/listener.h"

namespace strata::launcher::control {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = 16 << 10;

bool answers(const fs::path& socket) {
  const int error = error_of_connecting(socket);
  return error == 0 || error == EAGAIN;
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

void require_private(const fs::path& folder) {
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & 077) != 0)
    fail(Exit::failed, "{} is not a folder that this user alone can enter", folder.string());
}

// Requires a machine's name and nothing else for a word that goes to ssh or gRPC.
bool is_host(std::string_view text, std::string_view more = "") {
  return !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-' || more.find(static_cast<char>(c)) != more.npos;
  });
}
// HOST:PORT, or [ADDRESS]:PORT for IPv6.
bool is_host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return false;
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  return is_host(host, bracketed ? ":" : "") && parse_number<std::uint16_t>(text.substr(colon + 1)).value_or(0) > 0;
}

ServiceAddress of_socket(const fs::path& path) {
  return {host_name(), 0, path.string(), "", false};
}

// The file must belong to this user or root. Otherwise another user could decide where a secret is sent and to which
// machine ssh connects.
std::string read_address_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0)
    fail(Exit::usage,
         "{} does not exist: no run writes to that folder now (strata launch may be starting it again), or it runs "
         "with control.listen = off",
         path.string());
  if (status.st_uid != geteuid() && status.st_uid != 0)
    fail(Exit::usage, "{} belongs to another user (UID {}): name the run itself, by HOST:PORT or unix:PATH",
         path.string(), status.st_uid);
  std::string text(kMaxFileBytes, '\0');
  const ssize_t n = S_ISREG(status.st_mode) ? ::read(file.get(), text.data(), text.size()) : -1;
  if (n < 0) fail(Exit::failed, "{} cannot be read", path.string());
  text.resize(static_cast<std::size_t>(n));
  return text;
}

}  // namespace

std::string to_json(const ServiceAddress& address) {
  return JsonObject(JsonLayout::spaced)
             .add("host", address.host)
             .add("pid", address.pid)
             .add("socket", address.socket)
             .add("address", address.address)
             .add("tls", address.tls)
             .text() +
         "\n";
}

ServiceAddress parse_service_address(const std::string& text, const fs::path& path) {
  try {
    simdjson::dom::parser parser;
    const simdjson::dom::element root = parser.parse(text);
    ServiceAddress out;
    out.host = std::string(root["host"].get_string().value());
    out.pid = static_cast<int>(root["pid"].get_int64().value());
    out.socket = std::string(root["socket"].get_string().value());
    out.address = std::string(root["address"].get_string().value());
    out.tls = root["tls"].get_bool().value();
    if (out.socket.empty() && out.address.empty())
      fail(Exit::failed, "{} names neither a socket nor an address", path.string());
    if (!is_host(out.host)) fail(Exit::failed, "{} was not written by a run: its host is not a name", path.string());
    if (!out.address.empty() && !is_host_and_port(out.address))
      fail(Exit::failed, "{} was not written by a run: its address is not HOST:PORT", path.string());
    return out;
  } catch (const simdjson::simdjson_error&) {
    const auto fault = find_json_fault(text);
    fail(Exit::failed, "{} was not written by a run: {}", path.string(),
         fault ? "it has " + fault->found : "a value is missing or has the wrong type");
  }
}

fs::path socket_folder() {
  fs::path folder = folder_name();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    fail(Exit::failed, "{} cannot be made: {}", folder.string(), std::strerror(errno));
  require_private(folder);
  return folder;
}

void sweep(const fs::path& folder) {
  for (const fs::path& socket : sockets_in(folder))
    if (error_of_connecting(socket) == ECONNREFUSED) (void)::unlink(socket.c_str());
}

ServiceAddress find_service(const std::string& target) {
  constexpr std::string_view kUnix = "unix:";
  if (target.starts_with(kUnix)) {
    const fs::path path = target.substr(kUnix.size());
    if (path.empty()) fail(Exit::usage, "{} names no socket: give unix:PATH", target);
    if (error_of_connecting(path) == ENAMETOOLONG)
      fail(Exit::usage, "{} is too long for a socket: no run listens there", target);
    return of_socket(path);
  }
  if (target.empty()) {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(folder_name(), ignored))) require_private(folder_name());
    std::vector<fs::path> found = sockets_in(folder_name());
    std::erase_if(found, [](const fs::path& socket) { return !answers(socket); });
    if (found.empty())
      fail(Exit::usage,
           "no run of this user is found on {} (no socket in {} answers): name its checkpoint.dir, unix:PATH or "
           "HOST:PORT",
           host_name(), folder_name().string());
    if (found.size() > 1) {
      std::vector<std::string> names;
      names.reserve(found.size());
      for (const fs::path& socket : found) names.push_back("unix:" + socket.string());
      fail(Exit::usage, "{} runs of this user are found here: name one of {}, or its checkpoint.dir", names.size(),
           fmt::join(names, ", "));
    }
    return of_socket(found.front());
  }
  std::error_code ignored;
  const fs::path path = target;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_socket(status)) return of_socket(fs::absolute(path));
  if (fs::is_directory(status) || path.filename() == kAddressFile) {
    const fs::path file = fs::is_directory(status) ? path / kAddressFile : path;
    return parse_service_address(read_address_file(file), file);
  }
  if (!is_host_and_port(target))
    fail(Exit::usage, "{} is neither a run's folder, nor a socket, nor HOST:PORT or [ADDRESS]:PORT", target);
  return {"", 0, "", target, false};
}

}  // namespace strata::launcher::control
