#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace strata::runtime {

// A path as people write it, in a recipe, with --set or on the command line: `~` or `~/` at its start is the home
// folder, a relative one starts at `folder`, and `x/..` inside is left out if that leads to the same place (x may be
// a link). A `./` at its start stays: it tells a path from a word. Throws Error{usage} if HOME is not set.
std::filesystem::path user_path(std::string_view text, const std::filesystem::path& folder = {});

// The same of a glob; what looks like one in the names of `folder` and the home folder is escaped.
std::string user_pattern(std::string_view pattern, const std::filesystem::path& folder = {});

}  // namespace strata::runtime
