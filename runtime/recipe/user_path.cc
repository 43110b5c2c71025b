#include "runtime/recipe/user_path.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGlob = "*?[]\\";

bool is_glob(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

// The folder that a leading `~` stands for; empty if there is none.
std::string home_of(std::string_view text) {
  if (text != "~" && !text.starts_with("~/")) return {};
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): no thread sets it
  if (home == nullptr || *home == '\0')
    fail(Exit::usage, "{}: HOME is not set in the environment: write the home folder out, or ./~ for a file named ~",
         text);
  return home;
}

// The home folder joined with what follows `~`.
fs::path in_home(const std::string& home, std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of("~/"), text.size()));
  return text.empty() ? fs::path(home) : fs::path(home) / text;
}

fs::path tidied(const fs::path& path) {
  fs::path plain = path.lexically_normal();
  const std::string text = plain.string();
  const bool dotted = path.string().starts_with("./") && text != "." && !text.starts_with("..");
  // In a command that is printed, a leading dash would be an option; "-" alone is standard input.
  if (dotted || (text.starts_with('-') && text != "-")) plain = "./" + text;
  const bool up = std::find(path.begin(), path.end(), "..") != path.end();
  return up && !leads_to(path, plain) ? path : plain;
}

std::string escaped(const std::string& folder) {
  std::string out;
  for (const char c : folder) {
    if (kGlob.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

bool leads_to(const fs::path& one, const fs::path& other) {
  // Make paths absolute first: weakly_canonical leaves a relative path relative if no part of it exists. And it keeps a
  // slash at the end.
  const auto canonical = [](const fs::path& path, std::error_code& error) {
    return (fs::weakly_canonical(fs::absolute(path), error) / "").parent_path();
  };
  std::error_code of_one, of_other;
  const fs::path left = canonical(one, of_one), right = canonical(other, of_other);
  return left == right && !of_one && !of_other;
}

fs::path user_path(std::string_view text, const fs::path& folder) {
  if (text.empty()) return {};
  if (const std::string home = home_of(text); !home.empty()) return tidied(in_home(home, text));
  return tidied(fs::path(text).is_absolute() ? fs::path(text) : folder / text);
}

std::string user_pattern(std::string_view pattern, const fs::path& folder) {
  if (!is_glob(pattern)) return user_path(pattern, folder).string();
  std::string whole(pattern);
  if (const std::string home = home_of(pattern); !home.empty())
    whole = in_home(escaped(home), pattern).string();
  else if (!fs::path(pattern).is_absolute() && !folder.empty())
    whole = (fs::path(escaped(folder.string())) / pattern).string();
  // Only the folders before the first glob character are tidied.
  const std::size_t end = whole.rfind('/', whole.find_first_of(kGlob));
  if (end == std::string::npos || end == 0) return whole;
  return tidied(whole.substr(0, end)).string() + whole.substr(end);
}

}  // namespace strata::runtime
