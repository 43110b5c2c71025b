#include <limits>
#include <optional>
#include <utility>

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

// The tokens in generation_config.json; nullopt if they are in config.json.
std::optional<std::vector<std::uint32_t>> tokens_of_generation(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  const Config config = Config::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
  auto found = tokens(config);
  return config.has(kKey) ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace

std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory) {
  const auto found = tokens_of_generation(directory);
  return found ? *found : tokens(Config::read(directory));
}

std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory, const Config& description) {
  const auto found = tokens_of_generation(directory);
  return found ? *found : tokens(description);
}

}  // namespace strata::models
