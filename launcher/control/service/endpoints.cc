#include "launcher/control/service/endpoints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "base/host/host.h"

namespace strata::launcher::control {
namespace {

constexpr std::string_view kUnix = "unix:";

std::string address_of(const std::string& host, int port) {
  return fmt::format(fmt::runtime(host.find(':') == std::string::npos ? "{}:{}" : "[{}]:{}"), host, port);
}

// The address at which others reach the listener, with this machine's name in place of "any address".
std::string reached_at(const HostPort& address, int port) {
  const bool any = address.host.empty() || address.host == "0.0.0.0" || address.host == "::";
  return address_of(any ? host_name() : address.host, port);
}

bool is_address(const std::string& listen) {
  return listen != "off" && listen != "auto" && !listen.starts_with(kUnix);
}

}  // namespace

void require_guarded(const runtime::Recipe::Control& recipe) {
  if (is_address(recipe.listen) && recipe.listen == recipe.metrics && host_and_port(recipe.listen).port != 0)
    fail(Exit::usage, "control.listen and control.metrics both name {}: give each a port of its own", recipe.listen);
  if (recipe.tls_cert && recipe.tls_key && recipe.token_file) return;
  if (is_address(recipe.listen) && !is_loopback(host_and_port(recipe.listen), "control.listen"))
    fail(Exit::usage,
         "control.listen = \"{}\" lets other machines control this run: give control.tls_cert, control.tls_key and "
         "control.token_file, or use a loopback address (127.0.0.1:PORT)",
         recipe.listen);
  if (recipe.metrics != "off" && !recipe.metrics_public &&
      !is_loopback(host_and_port(recipe.metrics), "control.metrics"))
    fail(Exit::usage,
         "control.metrics = \"{}\" shows this run to other machines: give control.tls_cert, control.tls_key and "
         "control.token_file, set control.metrics_public = true if anyone may read it, or use a loopback address "
         "(127.0.0.1:PORT)",
         recipe.metrics);
}

Endpoints open_endpoints(const runtime::Recipe::Control& recipe) {
  Endpoints out;
  out.credentials = read_credentials(recipe);
  require_guarded(recipe);
  out.address = {host_name(), getpid(), "", "", false};
  if (recipe.metrics != "off") {
    const HostPort address = host_and_port(recipe.metrics);
    if (!recipe.metrics_public && !is_loopback(address, "control.metrics")) out.metrics_credentials = out.credentials;
    out.metrics = Listener::tcp(address, "control.metrics");
    out.metrics_at = fmt::format("http{}://{}/metrics", out.metrics_credentials.tls() ? "s" : "",
                                 reached_at(address, out.metrics->port()));
  }
  if (recipe.listen == "off") return out;
  if (recipe.listen == "auto") {
    // No secret is needed, because only this user can reach a private socket.
    out.credentials = {};
    try {
      const std::filesystem::path folder = socket_folder();
      sweep(folder);
      // A process in another container may have the same process ID.
      std::filesystem::path path = folder / fmt::format("{}.sock", getpid());
      for (int n = 2; std::filesystem::exists(path) && n < 100; ++n)
        path = folder / fmt::format("{}-{}.sock", getpid(), n);
      out.service = Listener::unix_socket(path, "control.listen");
    } catch (const Error& error) {
      out.refusal = error.what();
      return out;
    }
  } else if (recipe.listen.starts_with(kUnix)) {
    out.service = Listener::unix_socket(recipe.listen.substr(kUnix.size()), "control.listen");
    out.credentials = {"", "", "", out.credentials.token};  // TLS is for HOST:PORT only
  } else {
    const HostPort address = host_and_port(recipe.listen);
    out.service = Listener::tcp(address, "control.listen");
    out.address.address = reached_at(address, out.service->port());
    out.address.tls = out.credentials.tls();
  }
  out.address.socket = out.service->path().string();
  return out;
}

}  // namespace strata::launcher::control
