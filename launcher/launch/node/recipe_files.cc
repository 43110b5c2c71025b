#include "launcher/launch/node/recipe_files.h"

#include <simdjson.h>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "runtime/data/files/tokens.h"

namespace strata::launcher {

std::string to_json(std::span<const RecipeFile> files) {
  JsonArray out;
  for (const RecipeFile& file : files) out.add(JsonArray().add(file.key).add(file.pattern));
  return out.text();
}

std::vector<RecipeFile> parse_recipe_files(std::string_view json) {
  std::vector<RecipeFile> out;
  try {
    simdjson::dom::parser parser;
    for (const simdjson::dom::element one : parser.parse(simdjson::padded_string(json)))
      out.push_back({std::string(std::string_view(one.at(0))), std::string(std::string_view(one.at(1)))});
  } catch (const simdjson::simdjson_error&) {
    return {};
  }
  return out;
}

std::vector<std::string> unseen_here(std::span<const RecipeFile> files) {
  std::vector<std::string> out;
  for (const RecipeFile& file : files) try {
      // A model is a folder, which is not expanded; token files are no folders.
      std::error_code ignored;
      if (!file.key.starts_with("data.") && std::filesystem::is_directory(file.pattern, ignored)) continue;
      const std::string patterns[] = {file.pattern};
      (void)runtime::expand_patterns(patterns, file.key.c_str());
    } catch (const Error& error) {
      out.emplace_back(error.what());
    }
  return out;
}

}  // namespace strata::launcher
