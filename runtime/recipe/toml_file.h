#pragma once
#include <filesystem>
#include <string_view>

namespace strata::runtime {
// toml++ 3.3 asserts on some malformed texts (`[[` before a control character) where it should report them.
struct TomlAssertion {};
[[noreturn]] inline void toml_assertion_failed() {
  throw TomlAssertion{};
}
}  // namespace strata::runtime
#undef NDEBUG  // with it toml++ drops its own assertions, and these texts become undefined behaviour
#define TOML_ASSERT(expr) (static_cast<bool>(expr) ? static_cast<void>(0) : ::strata::runtime::toml_assertion_failed())
#include <toml++/toml.h>

namespace strata::runtime {

// Throws Error{usage} for a dotted key of more than a hundred parts, on which toml++ overflows the stack (and for as
// many dots in a text with nothing but letters between them).
void refuse_deep_keys(std::string_view text, std::string_view what);

// The file, of at most 1 MiB; `what` it is ("recipe") begins every error. Throws Error{usage} naming path and place.
toml::table read_toml(const std::filesystem::path& path, std::string_view what);

}  // namespace strata::runtime
