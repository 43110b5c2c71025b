#include "models/files/end_tokens.h"

#include <charconv>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "models/files/config.h"

namespace strata::models {
namespace {

constexpr std::string_view kKey = "eos_token_id";

std::vector<std::uint32_t> numbers(const Config& config) {
  const std::string json = config.json_or_empty(kKey);
  std::vector<std::uint32_t> out;
  for (const char *at = json.data(), *end = at + json.size(); at != end;) {
    if (*at == '[' || *at == ']' || *at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    const auto [next, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc())
      fail(Exit::corrupt, "{} is {}, where a token or a list of tokens is expected", config.describe(kKey), json);
    at = next;
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
    if (config.has(kKey)) return numbers(config);
  }
  return numbers(Config::read(directory));
}

}  // namespace strata::models
