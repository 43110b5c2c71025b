#pragma once
#include <optional>
#include <string>

#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/service/place.h"
#include "runtime/recipe/recipe.h"

namespace strata::launcher::control {

// Where a run lets people and tools in, opened before anything else of the run starts.
struct Front {
  std::optional<Listener> service;  // none: control.listen = "off", or there is no place for a private socket
  Credentials credentials;
  Place place;
  std::string refusal;  // why there is no private socket
  std::optional<Listener> metrics;
  std::string metrics_at;           // its URL
  Credentials metrics_credentials;  // none: anyone may read
};
// Throws Error{usage} if other machines would reach control.listen or control.metrics and the recipe names no
// certificate, key and token: what open_front() does first, for who starts ranks.
void require_guarded(const runtime::Recipe::Control& recipe);
// Throws Error{usage} in one sentence: what is asked for cannot be had, or would let anyone in.
Front open_front(const runtime::Recipe::Control& recipe);

}  // namespace strata::launcher::control
