#include "launcher/shell_word.h"

namespace strata::launcher {

std::string shell_word(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace strata::launcher
