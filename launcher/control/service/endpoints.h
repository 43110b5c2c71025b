#pragma once
#include <optional>
#include <string>

#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/service/service_address.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher::control {

// The sockets at which a run accepts connections from users and tools, opened before anything else of the run starts.
struct Endpoints {
  std::optional<Listener> service;  // empty: control.listen = "off", or no private socket can be created
  Credentials credentials;
  ServiceAddress address;
  std::string refusal;  // why there is no private socket
  std::optional<Listener> metrics;
  std::string metrics_at;           // the URL of the metrics
  Credentials metrics_credentials;  // empty: anyone may read the metrics
};
// Throws Error{usage} if other machines could reach control.listen or control.metrics but the recipe names no
// certificate, key and token. open_endpoints() checks this first. launch and plan, which open nothing, call it too.
void require_guarded(const runtime::Recipe::Control& recipe);
// Throws Error{usage} if the recipe requests something impossible, or something that would give access without
// credentials.
Endpoints open_endpoints(const runtime::Recipe::Control& recipe);

}  // namespace strata::launcher::control
