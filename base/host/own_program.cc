#include "base/host/own_program.h"

#include <string>
#include <string_view>

namespace strata {

std::filesystem::path own_program() {
  constexpr std::string_view kReplaced = " (deleted)";  // as Linux has it
  std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  if (path.ends_with(kReplaced)) path.resize(path.size() - kReplaced.size());
  return path;
}

}  // namespace strata
