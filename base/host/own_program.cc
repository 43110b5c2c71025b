#include "base/host/own_program.h"

#include <string>
#include <string_view>

namespace strata {

std::filesystem::path own_program() {
  constexpr std::string_view kReplaced = " (deleted)";  // Linux appends this to the path of a replaced program
  std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  if (path.ends_with(kReplaced)) path.resize(path.size() - kReplaced.size());
  return path;
}

}  // namespace strata
