#include "runtime/data/files/token_sidecar.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <string_view>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "base/quote.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSidecarBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLevels = 8;

[[noreturn]] void corrupt_sidecar(const fs::path& sidecar, const std::string& expected, const std::string& found) {
  fail(Exit::corrupt, "{}, offset 0: expected {}, found {}", sidecar.string(), expected, found);
}

}  // namespace

std::optional<TokenSidecar> read_sidecar(const fs::path& token_file) {
  const fs::path path = sidecar_path(token_file);
  std::error_code error_of_link, ignored;
  const bool link = fs::is_symlink(fs::symlink_status(path, ignored));
  const fs::file_type type = fs::status(path, error_of_link).type();
  // If the sidecar counted as missing, tokens of 4 bytes would be read as 2-byte tokens.
  if (link && (type == fs::file_type::not_found || error_of_link))
    fail(Exit::usage, "{} is a broken link ({}): fix it, or remove it if these tokens have no sidecar", path.string(),
         error_of_link.message());
  if (type == fs::file_type::not_found) return std::nullopt;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > kMaxSidecarBytes) {
    corrupt_sidecar(path, "a sidecar of at most 1 MiB", fmt::format("{} bytes", bytes.size()));
  }
  // An empty file has no bytes to point at, and the parser copies its input.
  const std::string_view json(bytes.empty() ? "" : reinterpret_cast<const char*>(bytes.data()), bytes.size());
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  auto error = parser.allocate(kMaxSidecarBytes, kMaxLevels);
  if (error == simdjson::SUCCESS) error = parser.parse(json.data(), json.size(), true).get(root);
  if (error != simdjson::SUCCESS) corrupt_sidecar(path, "a JSON object", found_in_json(json, kMaxLevels));
  const auto integer = [&](const char* key, std::int64_t least, std::int64_t most) {
    std::int64_t value = 0;
    if (root[key].get_int64().get(value) != simdjson::SUCCESS || value < least || value > most) {
      simdjson::dom::element found;
      const bool there = root[key].get(found) == simdjson::SUCCESS;
      corrupt_sidecar(path, fmt::format("{}: an integer from {} to {}", key, least, most),
                      there ? excerpt(simdjson::minify(found), 64) : "none");
    }
    return value;
  };
  const auto text = [&](const char* key) {
    std::string_view value;
    const auto found = root[key].get_string().get(value);
    if (found != simdjson::SUCCESS && found != simdjson::NO_SUCH_FIELD) {
      corrupt_sidecar(path, fmt::format("{}: a string", key), "something else");
    }
    return std::string(value);
  };
  TokenSidecar out;
  out.vocab_size = integer("vocab_size", 1, std::int64_t{1} << 32);
  out.width = static_cast<int>(integer("width", 2, 4));
  out.count = static_cast<std::uint64_t>(integer("count", 0, std::int64_t{1} << 60));
  out.tokenizer = text("tokenizer");
  out.tokenizer_hash = text("tokenizer_hash");
  out.hash = text("hash");
  if (out.width == 3) corrupt_sidecar(path, "width: 2 or 4 bytes", "3");
  const auto companion = [&](const char* key, const char* count_key) -> std::optional<TokenSidecar::Companion> {
    simdjson::dom::element found;
    if (root[key].get(found) != simdjson::SUCCESS) return std::nullopt;
    std::string_view hash;
    std::uint64_t count = 0;
    if (found[count_key].get_uint64().get(count) != simdjson::SUCCESS || count > out.count ||
        found["hash"].get_string().get(hash) != simdjson::SUCCESS)
      corrupt_sidecar(path, fmt::format("{}: {} up to {} and hash", key, count_key, out.count),
                      excerpt(simdjson::minify(found), 64));
    return TokenSidecar::Companion{count, std::string(hash)};
  };
  out.documents = companion("documents", "count");
  out.mask = companion("mask", "labels");
  out.types = companion("types", "ones");
  if (const auto lines = companion("labels", "count")) {
    TokenSidecar::Labels& labels = out.labels.emplace(TokenSidecar::Labels{lines->count, lines->hash, "", {}, false});
    std::string_view problem, name;
    simdjson::dom::array names;
    const auto found = root["labels"];
    bool right = found["problem"].get_string().get(problem) == simdjson::SUCCESS &&
                 found["names"].get_array().get(names) == simdjson::SUCCESS;
    labels.problem = problem;
    if (bool pairs = false; found["pairs"].get_bool().get(pairs) == simdjson::SUCCESS) labels.pairs = pairs;
    if (bool vectors = false; found["vectors"].get_bool().get(vectors) == simdjson::SUCCESS) labels.vectors = vectors;
    const auto option = [&](const char* key) {
      std::string_view value;
      return std::string(found[key].get_string().get(value) == simdjson::SUCCESS ? value : "");
    };
    labels.field = option("field");
    labels.pair = option("pair");
    labels.truncation = option("truncation");
    if (std::int64_t length = 0; found["max_length"].get_int64().get(length) == simdjson::SUCCESS && length > 0)
      labels.max_length = length;
    // An array that was not found has no elements.
    if (!right) corrupt_sidecar(path, "labels: problem and a list of names", excerpt(simdjson::minify(found), 64));
    for (const simdjson::dom::element element : names) {
      right = right && element.get_string().get(name) == simdjson::SUCCESS;
      labels.names.emplace_back(name);
    }
    if (!right || (labels.problem == "regression") != labels.names.empty())
      corrupt_sidecar(path, "labels: problem and a list of names", "something else");
  }
  if (simdjson::dom::element found; root["special_tokens"].get(found) == simdjson::SUCCESS) {
    out.special_tokens.emplace();
    simdjson::dom::array ids;
    if (found.get_array().get(ids) != simdjson::SUCCESS)
      corrupt_sidecar(path, "special_tokens: a list of tokens", excerpt(simdjson::minify(found), 64));
    for (const simdjson::dom::element id : ids) {
      std::uint64_t token = 0;
      if (id.get_uint64().get(token) != simdjson::SUCCESS || token >= static_cast<std::uint64_t>(out.vocab_size))
        corrupt_sidecar(path, fmt::format("special_tokens: tokens below {}", out.vocab_size), simdjson::minify(id));
      out.special_tokens->push_back(static_cast<std::uint32_t>(token));
    }
  }
  if (simdjson::dom::element found; root["mask_token"].get(found) == simdjson::SUCCESS)
    out.mask_token = static_cast<std::uint32_t>(integer("mask_token", 0, out.vocab_size - 1));
  out.chat_template = text("chat_template");
  out.chat_template_hash = text("chat_template_hash");
  return out;
}

std::string to_json(const TokenSidecar& sidecar) {
  constexpr JsonLayout kLayout = JsonLayout::spaced;
  JsonObject out(kLayout);
  out.add("vocab_size", sidecar.vocab_size)
      .add("width", sidecar.width)
      .add("tokenizer", sidecar.tokenizer)
      .add("tokenizer_hash", sidecar.tokenizer_hash)
      .add("hash", sidecar.hash)
      .add("count", sidecar.count);
  const auto companion = [&](const char* key, const char* count_key,
                             const std::optional<TokenSidecar::Companion>& file) {
    if (file) out.add(key, JsonObject(kLayout).add(count_key, file->count).add("hash", file->hash));
  };
  companion("documents", "count", sidecar.documents);
  companion("mask", "labels", sidecar.mask);
  companion("types", "ones", sidecar.types);
  if (sidecar.labels) {
    const TokenSidecar::Labels& of = *sidecar.labels;
    JsonObject labels(kLayout);
    labels.add("count", of.count)
        .add("hash", of.hash)
        .add("problem", of.problem)
        .add("names", JsonArray(kLayout).add_all(of.names));
    if (of.pairs) labels.add("pairs", true);
    if (of.vectors) labels.add("vectors", true);
    if (!of.field.empty()) labels.add("field", of.field);
    if (!of.pair.empty()) labels.add("pair", of.pair);
    if (of.max_length > 0) labels.add("max_length", of.max_length);
    if (!of.truncation.empty()) labels.add("truncation", of.truncation);
    out.add("labels", labels);
  }
  if (sidecar.special_tokens) out.add("special_tokens", JsonArray(kLayout).add_all(*sidecar.special_tokens));
  if (sidecar.mask_token) out.add("mask_token", *sidecar.mask_token);
  if (!sidecar.chat_template_hash.empty())
    out.add("chat_template", sidecar.chat_template).add("chat_template_hash", sidecar.chat_template_hash);
  return out.text() + "\n";
}

}  // namespace strata::runtime
