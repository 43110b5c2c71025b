#include "launcher/command_line/argument_kinds.h"

#include <fmt/format.h>

#include <string_view>

#include "base/number.h"
#include "runtime/recipe/user_path.h"

namespace strata::launcher {

namespace {

bool has_leading_zeros(std::string_view integer) {
  if (integer.starts_with('-')) integer.remove_prefix(1);
  return integer.size() > 1 && integer.front() == '0';
}

}  // namespace

CLI::Validator integer(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    const auto x = parse_number<std::int64_t>(text);
    if (!x || *x < least || *x > most) return fmt::format("{} is not an integer from {} to {}", text, least, most);
    // Refused because other programs read numbers with leading zeros as octal.
    if (has_leading_zeros(text)) return fmt::format("{} begins with a zero: write {}", text, *x);
    text = std::to_string(*x);
    return {};
  };
  return {check, fmt::format("INT in [{} - {}]", least, most), "integer"};
}

CLI::Validator within(double least, double most) {
  const auto check = [least, most](std::string& text) {
    const auto x = parse_number<double>(text);
    if (x && *x >= least && *x <= most) return std::string();
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
