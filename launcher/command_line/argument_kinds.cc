#include "launcher/command_line/argument_kinds.h"

#include <fmt/format.h>

#include "runtime/recipe/user_path.h"

namespace strata::launcher {

CLI::Validator within(double least, double most) {
  const auto check = [least, most](std::string& text) {
    double x = 0;
    if (CLI::detail::lexical_cast(text, x) && x >= least && x <= most) return std::string();
    return fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  return {check, fmt::format("FLOAT in [{} - {}]", least, most), "within"};
}

CLI::Validator as_path() {
  const auto change = [](std::string& text) {
    text = runtime::user_path(text).string();
    return std::string();
  };
  return {change, ""};
}

}  // namespace strata::launcher
