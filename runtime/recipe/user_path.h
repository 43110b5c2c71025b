#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace strata::runtime {

// A path as users write it in a recipe, with --set or on the command line: `~` or `~/` at the start is the home folder,
// a relative path starts at `folder`, and `x/..` is removed if that leads to the same place (x may be a symbolic link).
// A leading `./` stays, because it marks a word as a path. Throws Error{usage} if HOME is needed and not set.
std::filesystem::path user_path(std::string_view text, const std::filesystem::path& folder = {});

// True if the paths lead to the same place, whatever their spelling and through symbolic links. Parts that do not exist
// are compared by their names.
bool leads_to(const std::filesystem::path& one, const std::filesystem::path& other);

// The same as user_path() for a glob; glob characters in the names of `folder` and the home folder are escaped.
std::string user_pattern(std::string_view pattern, const std::filesystem::path& folder = {});

}  // namespace strata::runtime
