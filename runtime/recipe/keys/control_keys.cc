#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json/json_writer.h"
#include "base/number.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/user_path.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

// HOST:PORT, or [ADDRESS]:PORT for IPv6.
bool is_host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = text.substr(0, colon);
  if (host.find(':') != std::string_view::npos && !(host.starts_with('[') && host.ends_with(']'))) return false;
  return parse_number<std::uint16_t>(text.substr(colon + 1)).has_value();
}

// The address to listen at: a word, HOST:PORT, or (`sockets`) unix:PATH.
template <typename At>
RecipeKey listen(std::string name, std::vector<std::string> words, bool sockets, At at, std::string meaning) {
  auto set = [=](Recipe& recipe, const Value& v, const fs::path& folder) {
    const auto* text = std::get_if<std::string>(&v.value);
    if (!text) return false;
    refuse_zero_bytes(name, *text);
    constexpr std::string_view kUnix = "unix:";
    if (sockets && text->starts_with(kUnix) && text->size() > kUnix.size()) {
      at(recipe) = std::string(kUnix) + user_path(text->substr(kUnix.size()), folder).string();
      return true;
    }
    at(recipe) = *text;
    return std::find(words.begin(), words.end(), *text) != words.end() || is_host_and_port(*text);
  };
  std::string allowed;
  for (const std::string& word : words) allowed += json_string(word) + ", ";
  allowed += sockets ? "\"unix:PATH\" or \"HOST:PORT\"" : "or \"HOST:PORT\"";
  if (!sockets) allowed.erase(allowed.find(", or"), 1);
  return plain(name, std::move(allowed), std::move(meaning), at, set);
}

template <typename At>
RecipeKey text(std::string name, std::string allowed, At at, std::string meaning) {
  auto set = [=](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* given = std::get_if<std::string>(&v.value);
    if (given) at(recipe) = *given;
    return given != nullptr;
  };
  return plain(std::move(name), std::move(allowed), std::move(meaning), at, set);
}

}  // namespace

std::vector<RecipeKey> control_keys() {
  return {
      listen("control.listen", {"auto", "off"}, true, STRATA_AT(control.listen),
             "address for status, checkpoint and stop requests (strata ctl, top); auto: a Unix socket that only this "
             "user can reach"),
      path("control.tls_cert", STRATA_AT(control.tls_cert), "certificate of control.listen and control.metrics (PEM)"),
      path("control.tls_key", STRATA_AT(control.tls_key), "its private key (PEM); readable only by its owner"),
      path("control.tls_client_ca", STRATA_AT(control.tls_client_ca),
           "CA certificates for mutual TLS (PEM): every client needs a certificate that one of them signed"),
      path("control.token_file", STRATA_AT(control.token_file),
           "a file with a secret token that clients must send; readable only by its owner"),
      text("control.interface", "a network interface, or an address of it", STRATA_AT(control.interface),
           "network over which nodes watch each other; default: any"),
      listen("control.metrics", {"off"}, false, STRATA_AT(control.metrics),
             "address at which to serve /metrics for Prometheus, and /healthz for anyone"),
      flag("control.metrics_public", STRATA_AT(control.metrics_public),
           "serve control.metrics beyond this host to anyone"),
      number("control.timeout", 0, 86'400, "seconds from 0 to 86400", STRATA_AT(control.timeout),
             "a node that has not been heard from for this long is lost, and the run ends; 0: never"),
      number("control.warn_after", 0, 86'400, "seconds from 0 to 86400", STRATA_AT(control.warn_after),
             "warn about a rank that has stalled for this long, or for ten times the usual time of its task; 0: never"),
      number("control.stuck_after", 0, 1e7, "seconds from 0 to 10000000", STRATA_AT(control.stuck_after),
             "write the state of all ranks to a file and end the run when a rank has stalled for this long; 0: never"),
  };
}

}  // namespace strata::runtime
