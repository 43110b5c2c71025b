#include "text/folder/folder_files.h"

#include <system_error>
#include <vector>

#include "base/error.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;

std::optional<Value> read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  const MappedFile file(path);
  try {
    std::vector<UnrepresentableNumber> odd;  // in Python's notation (Infinity), in fields that nothing here reads
    Value out = parse_json(text_of(file), RepeatedKeys::last_counts, &odd);
    if (!out.is(Kind::dict)) fail(Exit::corrupt, "{}: expected a JSON object, found {}", path.string(), kind_text(out));
    return out;
  } catch (const JsonFault& fault) {
    fail(Exit::corrupt, "{}, offset {}: {}", path.string(), fault.at, fault.message);
  }
}

}  // namespace

std::string_view text_of(const MappedFile& file) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxBytes)
    fail(Exit::corrupt, "{}: expected a file of at most 256 MiB, found {} bytes", file.path().string(), bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

FolderFiles read_folder_files(const fs::path& folder) {
  FolderFiles out{.folder = folder,
                  .config = read_object(folder / "tokenizer_config.json"),
                  .map = read_object(folder / "special_tokens_map.json"),
                  .added = read_object(folder / "added_tokens.json")};
  try {
    out.model = read_object(folder / "config.json");
  } catch (const Error&) {
    // Ignored here, because loading the model reports the fault.
  }
  return out;
}

}  // namespace strata::text
