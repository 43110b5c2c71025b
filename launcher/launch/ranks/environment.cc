#include "launcher/launch/ranks/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

extern char** environ;

namespace strata::launcher {
namespace {

// Names of variables that begin with one of these, or are equal to it, in order.
std::vector<std::string> names_like(std::initializer_list<std::string_view> beginnings) {
  std::vector<std::string> out;
  for (char** one = environ; *one; ++one) {
    const std::string_view name = std::string_view(*one).substr(0, std::string_view(*one).find('='));
    if (name == "LD_LIBRARY_PATH" || std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view beginning) {
          return name.starts_with(beginning);
        }))
      out.emplace_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_name(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

}  // namespace

std::vector<std::string> forwarded_names(const std::vector<std::string>& named) {
  std::vector<std::string> out = names_like({"STRATA_", "NCCL_"});
  for (const std::string& text : named) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (!is_name(name))
      fail(Exit::usage, "--env {}: \"{}\" is not a variable's name: give NAME or NAME=VALUE", text, name);
    if (equals != std::string::npos)
      ::setenv(name.c_str(), text.c_str() + equals + 1, 1);
    else if (!std::getenv(name.c_str()))
      fail(Exit::usage, "--env {0}: {0} is not set here: export it, or give {0}=VALUE", name);
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

std::vector<std::string> agent_environment() {
  std::vector<std::string> out;
  for (const std::string& name : names_like({"STRATA_"})) out.push_back(name + "=" + std::getenv(name.c_str()));
  return out;
}

}  // namespace strata::launcher
