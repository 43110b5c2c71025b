#pragma once
#include <simdjson.h>

#include <map>
#include <string>

namespace strata::tests {

// Gives equal texts for values that differ only in the order of members, or in members that are null or empty objects.
// In a model's configuration, such members mean the same as absent ones.
inline std::string canonical(simdjson::dom::element value) {
  std::string out;
  if (simdjson::dom::array list; value.get_array().get(list) == simdjson::SUCCESS) {
    for (const simdjson::dom::element item : list) out += (out.empty() ? "" : ",") + canonical(item);
    return "[" + out + "]";
  }
  simdjson::dom::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return simdjson::minify(value);
  std::map<std::string, std::string> fields;
  for (const auto field : object)
    if (const std::string inner = canonical(field.value); inner != "null" && inner != "{}")
      fields.emplace(field.key, inner);
  for (const auto& [key, inner] : fields) out += (out.empty() ? "\"" : ",\"") + key + "\":" + inner;
  return "{" + out + "}";
}
inline std::string canonical(const std::string& json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  return parser.parse(json).get(root) == simdjson::SUCCESS ? canonical(root) : "no JSON: " + json;
}

}  // namespace strata::tests
