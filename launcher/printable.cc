#include "launcher/printable.h"

#include <fmt/format.h>

#include <cstdio>

namespace strata::launcher {

std::string printable(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<unsigned char>(out[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) out[i] = '?';
    // U+0080 to U+009F, which some terminals obey too.
    if (byte == 0xc2 && i + 1 < out.size() && (static_cast<unsigned char>(out[i + 1]) & 0xe0) == 0x80) {
      out[i] = '?';
      out.erase(i + 1, 1);
    }
  }
  return out;
}

void note(std::string_view text) {
  fmt::print(stderr, "strata: {}\n", printable(text));
}

}  // namespace strata::launcher
