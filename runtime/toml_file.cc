#include "runtime/toml_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "device/error.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

std::string read_text(const std::filesystem::path& path, std::string_view what) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(kMaxBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad())
    fail(Exit::usage, "{} {} cannot be read: {}", what, path.string(), std::strerror(errno ? errno : EIO));
  if (text.size() > kMaxBytes) fail(Exit::usage, "{} {} is larger than 1 MiB: not a {}", what, path.string(), what);
  return text;
}

}  // namespace

toml::table read_toml(const std::filesystem::path& path, std::string_view what) {
  const std::string text = read_text(path, what);
  try {
    return toml::parse(text, path.string());
  } catch (const toml::parse_error& error) {
    fail(Exit::usage, "{} {}, line {}, column {}: {}", what, path.string(), error.source().begin.line,
         error.source().begin.column, error.description());
  } catch (const TomlAssertion&) {
    fail(Exit::usage, "{} {} is not TOML", what, path.string());
  }
}

}  // namespace strata::runtime
