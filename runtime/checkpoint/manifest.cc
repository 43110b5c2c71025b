#include "runtime/checkpoint/manifest.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <xxhash.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "base/number.h"
#include "base/quote.h"
#include "models/files/python.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;

// Version 2: an adapter's base may be outside the files. Version 3: the files may hold boxes. A manifest has the lowest
// version that supports its content.
constexpr std::uint64_t kBaseVersion = 2, kBoxVersion = 3, kVersion = kBoxVersion;
constexpr std::string_view kFormat = "strata checkpoint";
// The file ends with the 16 digits of its checksum and then this text. The checksum is computed with zeros for its
// digits.
constexpr std::string_view kEnd = "\"}\n";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kMaxDepth = 32;

std::uint64_t checksum(std::string text) {
  text.replace(text.size() - kEnd.size() - kDigits, kDigits, kDigits, '0');
  return XXH3_64bits(text.data(), text.size());
}

// Looks up fields of a manifest; a missing field or a wrong type is Error{corrupt}.
class Fields {
 public:
  Fields(element node, const fs::path& path) : node_(node), path_(path) {}

  Fields at(std::string_view key) const {
    element value;
    if (node_[key].get(value) != simdjson::SUCCESS) wrong(key, "a value");
    return {value, path_};
  }
  bool has(std::string_view key) const { return node_[key].error() == simdjson::SUCCESS; }
  std::uint64_t integer(std::string_view key, std::uint64_t most = std::uint64_t{1} << 62) const {
    std::uint64_t value = 0;
    if (node_[key].get_uint64().get(value) != simdjson::SUCCESS || value > most) wrong(key, "a whole number");
    return value;
  }
  std::string text(std::string_view key) const {
    std::string_view value;
    if (node_[key].get_string().get(value) != simdjson::SUCCESS) wrong(key, "a string");
    return std::string(value);
  }
  std::uint64_t hex(std::string_view key) const {
    const std::string digits = text(key);
    const auto value = parse_number<std::uint64_t>(digits, 16);
    if (!value || digits.size() != kDigits) wrong(key, "16 hexadecimal digits");
    return *value;
  }
  double number(std::string_view key) const {
    double value = 0;
    if (node_[key].get_double().get(value) != simdjson::SUCCESS || !std::isfinite(value)) wrong(key, "a number");
    return value;
  }
  // A number, or "inf", "-inf" or "nan" in quotes, because JSON has no such numbers.
  double any_number(std::string_view key) const {
    std::string_view text;
    if (node_[key].get_string().get(text) != simdjson::SUCCESS) return number(key);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "inf") return kInfinity;
    if (text == "-inf") return -kInfinity;
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    wrong(key, "a number");
  }
  simdjson::dom::array list(std::string_view key) const {
    simdjson::dom::array value;
    if (node_[key].get_array().get(value) != simdjson::SUCCESS) wrong(key, "a list");
    return value;
  }
  simdjson::dom::object object(std::string_view key) const {
    simdjson::dom::object value;
    if (node_[key].get_object().get(value) != simdjson::SUCCESS) wrong(key, "an object");
    return value;
  }
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const {
    fail(Exit::corrupt, "{}: expected {} at \"{}\", found {}", path_.string(), expected, key,
         excerpt(simdjson::minify(node_), 64));
  }

 private:
  element node_;
  const fs::path& path_;
};

TensorEntry tensor_of(const Fields& fields) {
  TensorEntry out{fields.text("name"), {}};
  std::uint64_t elements = 1;
  for (const element item : fields.list("shape")) {
    std::uint64_t size = 0;
    if (item.get_uint64().get(size) != simdjson::SUCCESS || __builtin_mul_overflow(elements, size, &elements) ||
        elements > std::uint64_t{1} << 50)
      fields.wrong("shape", "the sizes of a tensor");
    out.shape.push_back(size);
  }
  out.frozen = fields.has("frozen");
  return out;
}

ShardEntry shard_of(const Fields& fields) {
  ShardEntry out{fields.text("name"), fields.integer("bytes"), fields.integer("header_bytes", 1u << 30),
                 fields.hex("header_xxh3")};
  if (out.name.empty() || out.name[0] == '.' || out.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    fields.wrong("name", "the name of a file in the manifest's folder");
  if (out.header_bytes < 8 || out.header_bytes > out.bytes) fields.wrong("header_bytes", "a header inside the file");
  return out;
}

// The text that any_number() reads back as the same value.
std::string text_of(double value) {
  if (std::isfinite(value)) return fmt::format("{}", value);
  return std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"";
}

// Up to version 0.6 a best value that is not finite was printed without quotes, which is not JSON: adds them. A JSON
// string cannot contain a line break, so nothing else can look like this line.
std::string with_quoted_best(std::string_view json) {
  std::string out(json);
  constexpr std::string_view kLine = "\n\"best\":{\"step\":", kValue = ",\"value\":";
  const std::size_t line = out.find(kLine);
  const std::size_t at = line == std::string::npos ? line : out.find(kValue, line);
  if (at == std::string::npos) return out;
  const std::size_t begin = at + kValue.size(), end = out.find(',', begin);
  if (end == std::string::npos) return out;
  const std::string_view value = std::string_view(out).substr(begin, end - begin);
  if (value != "inf" && value != "-inf" && value != "nan" && value != "-nan") return out;
  const std::string quoted = fmt::format("\"{}\"", value == "-nan" ? "nan" : value);
  return out.replace(begin, end - begin, quoted);
}

}  // namespace

std::uint64_t TensorEntry::elements() const {
  std::uint64_t n = 1;
  for (const std::uint64_t size : shape) n *= size;
  return n;
}

std::vector<TensorEntry> tensors_of(const models::Model& model) {
  std::vector<TensorEntry> out;
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters())
      out.push_back({p.name, {p.shape.begin(), p.shape.end()}, !p.trained()});
  return out;
}

std::string with_checksum(std::string json) {
  const std::uint64_t sum = checksum(json);
  return json.replace(json.size() - kEnd.size() - kDigits, kDigits, fmt::format("{:016x}", sum));
}

std::string to_json(const Manifest& m) {
  const Progress& p = m.progress;
  JsonArray tensors(JsonLayout::lines), files(JsonLayout::lines);
  for (const TensorEntry& tensor : m.tensors) {
    JsonObject entry;
    entry.add("name", tensor.name).add("shape", JsonArray().add_all(tensor.shape));
    if (tensor.frozen) entry.add("frozen", true);
    tensors.add(entry);
  }
  for (const ShardEntry& file : m.files)
    files.add(JsonObject()
                  .add("name", file.name)
                  .add("bytes", file.bytes)
                  .add("header_bytes", file.header_bytes)
                  .add("header_xxh3", fmt::format("{:016x}", file.header_hash)));
  JsonObject recipe(JsonLayout::lines);
  for (const auto& [key, value] : m.recipe) recipe.add(key, value);

  const JsonObject model =
      JsonObject(JsonLayout::wrapped)
          .add_all(
              JsonObject().add("family", m.family).add("config", JsonText{models::without_python_numbers(m.config)}))
          .add("tensors", tensors);

  // Members that share a line are added together.
  JsonObject out(JsonLayout::wrapped);
  const std::uint64_t version = m.boxes ? kBoxVersion : m.base_hash.empty() ? 1 : kBaseVersion;
  out.add_all(JsonObject().add("format", kFormat).add("version", version));
  out.add_all(JsonObject()
                  .add("serial", m.serial)
                  .add("step", p.step)
                  .add("adam_t", p.updates)
                  .add("tokens", p.tokens)
                  .add("next_micro_batch", p.next_micro_batch)
                  .add("micro_batches_per_step", m.micro_batches_per_step)
                  .add("ranks", m.ranks));
  out.add("loss_scale", JsonObject()
                            .add("scale", JsonText{fmt::format("{}", p.loss_scale.scale)})
                            .add("growth_tracker", p.loss_scale.growth_tracker));
  out.add("model", model);
  if (p.best)
    out.add("best", JsonObject()
                        .add("step", p.best->step)
                        .add("value", JsonText{text_of(p.best->value)})
                        .add("since", p.best->since)
                        .add("newest", p.best->newest));
  out.add("recipe", recipe);
  if (!m.base_hash.empty()) out.add("base", JsonObject().add("path", m.base_path).add("hash", m.base_hash));
  if (!m.data_hash.empty()) out.add("data_xxh3", m.data_hash);
  if (!m.validation_hash.empty()) out.add("validation_xxh3", m.validation_hash);
  if (!m.algorithms.empty()) out.add("algorithms", m.algorithms);
  out.add("files", files);
  out.add("checksum", std::string(kDigits, '0'));
  return with_checksum(out.text() + "\n");
}

Manifest parse_manifest(std::string_view json, const fs::path& path) {
  if (json.size() > kMaxManifestBytes)
    fail(Exit::corrupt, "{} has {} bytes: no manifest is that long", path.string(), json.size());
  simdjson::dom::parser parser;
  element root;
  auto error = parser.allocate(std::max<std::size_t>(json.size(), 64), kMaxDepth);
  if (error == simdjson::SUCCESS) error = parser.parse(json.empty() ? "" : json.data(), json.size(), true).get(root);
  if (error != simdjson::SUCCESS) {
    const std::string quoted = with_quoted_best(json);
    if (quoted.size() != json.size()) error = parser.parse(quoted).get(root);
  }
  if (error != simdjson::SUCCESS)
    fail(Exit::corrupt, "{}: expected a manifest in JSON, found {}", path.string(), found_in_json(json, kMaxDepth));
  const Fields fields(root, path);
  if (fields.text("format") != kFormat) fields.wrong("format", fmt::format("\"{}\"", kFormat));
  // The checksum has the same place in every version, so that a newer manifest can be distinguished from a damaged one.
  // Compare its digits as text: a flipped bit turns "a" into "A", which is the same number.
  const std::string stored = fields.text("checksum");
  if (!json.ends_with(stored + std::string(kEnd)) || stored.size() != kDigits ||
      stored != fmt::format("{:016x}", checksum(std::string(json))))
    fail(Exit::corrupt, "{}: expected checksum {}, found {:016x}: the file is damaged", path.string(), stored,
         json.size() > kDigits + kEnd.size() ? checksum(std::string(json)) : 0);
  const std::uint64_t version = fields.integer("version");
  if (version < 1 || version > kVersion)
    fail(Exit::usage, "{} has version {} of the format, but this program reads versions up to {}: use a newer Strata",
         path.string(), version, kVersion);

  Manifest m;
  m.boxes = version >= kBoxVersion;
  m.serial = fields.integer("serial");
  m.progress = {static_cast<std::int64_t>(fields.integer("step")),
                static_cast<std::int64_t>(fields.integer("adam_t")),
                fields.integer("next_micro_batch"),
                fields.integer("tokens"),
                {},
                {}};
  const Fields scale = fields.at("loss_scale");
  m.progress.loss_scale = {static_cast<float>(scale.number("scale")),
                           static_cast<std::int64_t>(scale.integer("growth_tracker"))};
  if (!(m.progress.loss_scale.scale > 0) || !std::isfinite(m.progress.loss_scale.scale))
    scale.wrong("scale", "a number above 0");
  if (m.progress.updates > m.progress.step) fields.wrong("adam_t", "at most the number of steps");
  if (fields.has("best")) {
    const Fields best = fields.at("best");
    m.progress.best = {static_cast<std::int64_t>(best.integer("step")), best.any_number("value"),
                       static_cast<std::int64_t>(best.integer("since")),
                       static_cast<std::int64_t>(best.integer("newest"))};
    if (m.progress.best->newest > m.progress.step || m.progress.best->step > m.progress.best->newest)
      best.wrong("newest", "a completed step, not before the best one");
  }
  m.micro_batches_per_step = fields.integer("micro_batches_per_step");
  m.ranks = static_cast<int>(fields.integer("ranks", 1u << 24));
  const Fields model = fields.at("model");
  m.family = model.text("family");
  m.config = models::minified(model.object("config"));
  std::set<std::string> names;
  for (const element item : model.list("tensors")) {
    m.tensors.push_back(tensor_of({item, path}));
    if (!names.insert(m.tensors.back().name).second) model.wrong("tensors", "each name once");
  }
  for (const auto field : fields.object("recipe")) {
    std::string_view value;
    if (field.value.get_string().get(value) != simdjson::SUCCESS) fields.wrong("recipe", "strings");
    m.recipe.emplace(std::string(field.key), std::string(value));
  }
  if (fields.has("base")) {
    const Fields base = fields.at("base");
    m.base_path = base.text("path");
    m.base_hash = base.text("hash");
    if (m.base_hash.empty()) base.wrong("hash", "a hash");
  }
  if (fields.has("data_xxh3")) m.data_hash = fields.text("data_xxh3");
  if (fields.has("validation_xxh3")) m.validation_hash = fields.text("validation_xxh3");
  if (fields.has("algorithms")) m.algorithms = fields.text("algorithms");
  for (const element item : fields.list("files")) m.files.push_back(shard_of({item, path}));
  return m;
}

}  // namespace strata::runtime
