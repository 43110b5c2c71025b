#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "models/files/config.h"

// Any text is a configuration or an Error. A configuration survives being written and read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using strata::models::Config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    Config config = Config::parse(text, "input");
    const std::string written = config.to_json();
    if (Config::parse(written, "written").to_json() != written) std::abort();
    for (const std::string& key : config.unread()) {
      try {
        (void)config.number_or(key, 0);
        (void)config.texts(key);
        (void)config.integers(key);
      } catch (const strata::Error&) {
      }
    }
    config.override_key("rope_parameters", text);
    if (Config::parse(config.to_json(), "written").to_json() != config.to_json()) std::abort();
  } catch (const strata::Error&) {
  }
  return 0;
}
