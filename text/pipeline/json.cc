#include "text/pipeline/json.h"

namespace strata::text {

std::string_view Json::text() const {
  std::string_view out;
  if (value_.get_string().get(out) != simdjson::SUCCESS) wrong("a string");
  return out;
}

bool Json::flag() const {
  bool out = false;
  if (value_.get_bool().get(out) != simdjson::SUCCESS) wrong("true or false");
  return out;
}

std::int64_t Json::integer(std::int64_t least, std::int64_t most) const {
  std::int64_t out = 0;
  if (value_.get_int64().get(out) != simdjson::SUCCESS || out < least || out > most) {
    wrong(fmt::format("an integer from {} to {}", least, most));
  }
  return out;
}

double Json::number() const {
  double out = 0;
  if (value_.get_double().get(out) != simdjson::SUCCESS) wrong("a number");
  return out;
}

std::optional<Json> Json::find(std::string_view key) const {
  simdjson::dom::object object;
  if (value_.get_object().get(object) != simdjson::SUCCESS) wrong("an object");
  simdjson::dom::element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return Json(value, *file_, below(key));
}

Json Json::at(std::string_view key) const {
  auto found = find(key);
  if (!found) wrong(fmt::format("an object with the key \"{}\"", key));
  return *std::move(found);
}

bool Json::flag_or(std::string_view key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->flag() : otherwise;
}

std::string Json::text_or(std::string_view key, std::string_view otherwise) const {
  const auto found = find(key);
  return std::string(found ? found->text() : otherwise);
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;  // not inside a character
  return fmt::format("{}... ({} bytes)", text.substr(0, most), text.size());
}

void Json::wrong(std::string_view expected) const {
  constexpr std::size_t kMostFound = 64;
  fail(Exit::corrupt, "{}: {}: expected {}, found {}", *file_, place_.empty() ? "the whole" : shortened(place_),
       expected, shortened(simdjson::minify(value_), kMostFound));
}

void Json::unsupported(std::string_view what) const {
  fail(Exit::usage, "{}: {}: {} is not supported", *file_, place_.empty() ? "the whole" : shortened(place_), what);
}

}  // namespace strata::text
