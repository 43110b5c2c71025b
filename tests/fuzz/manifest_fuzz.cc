#include <cstdlib>
#include <string>

#include "base/error.h"
#include "runtime/checkpoint/manifest.h"

// Any bytes are a manifest or an Error. They are also tried with the right checksum, so that the code after that check
// is reached. A manifest survives being written and read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace strata::runtime;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto parse = [](const std::string& json) {
    try {
      const Manifest manifest = parse_manifest(json, "manifest.json");
      const std::string again = to_json(manifest);
      if (to_json(parse_manifest(again, "manifest.json")) != again) std::abort();
    } catch (const strata::Error&) {
    }
  };
  parse(text);
  if (text.ends_with("\"}\n") && size > 32) parse(with_checksum(text));
  return 0;
}
