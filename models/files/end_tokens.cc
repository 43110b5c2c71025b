#include <limits>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "models/files/config.h"

namespace strata::models {
namespace {

constexpr std::string_view kKey = "eos_token_id";

std::vector<std::uint32_t> tokens(const Config& config) {
  std::vector<std::uint32_t> out;
  for (const std::int64_t token : config.integers(kKey)) {
    if (token < 0 || token > std::numeric_limits<std::uint32_t>::max())
      fail(Exit::corrupt, "{} has {}: expected a token's number, counted from 0", config.describe(kKey), token);
    out.push_back(static_cast<std::uint32_t>(token));
  }
  return out;
}

}  // namespace

std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) {
    const MappedFile mapped(file);
    const auto bytes = mapped.bytes();
    const Config config = Config::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
    if (auto found = tokens(config); config.has(kKey)) return found;
  }
  return tokens(Config::read(directory));
}

}  // namespace strata::models
