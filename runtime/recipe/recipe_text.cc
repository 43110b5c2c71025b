#include "runtime/recipe/recipe_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "runtime/recipe/keys.h"

namespace strata::runtime {

namespace fs = std::filesystem;

std::string to_text(const Recipe& recipe) {
  std::string out;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.name.starts_with("report.") || key.name.starts_with("control.") || key.name == "device.threads") continue;
    out += fmt::format("{} = {}\n", key.name, key.text(recipe));
  }
  if (recipe.data.train.size() > 1) out += fmt::format("data.train.weights = {}\n", weights_text(recipe.data.train));
  for (const auto& [key, json] : recipe.model.config) out += fmt::format("model.config.{} = {}\n", key, json);
  return out;
}

std::string to_toml(const Recipe& recipe) {
  Recipe whole = recipe;
  const auto absolute = [](auto& path) { path = fs::absolute(path).lexically_normal().string(); };
  for (auto* path : {&whole.model.path, &whole.checkpoint.dir, &whole.evaluation.prompts, &whole.control.tls_cert,
                     &whole.control.tls_key, &whole.control.tls_client_ca, &whole.control.token_file})
    if (*path) absolute(**path);
  for (fs::path& path : whole.memory.nvme) absolute(path);
  for (DataSource& source : whole.data.train)
    for (std::string& pattern : source.files) absolute(pattern);
  for (std::string& pattern : whole.data.validation) absolute(pattern);
  if (std::string& resume = whole.checkpoint.resume; resume != "auto" && resume != "none") absolute(resume);
  const Recipe defaults;
  std::string out;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string text = key.text(whole);
    if (!key.name.starts_with("report.") && text != key.text(defaults)) out += fmt::format("{} = {}\n", key.name, text);
  }
  // TOML has no null.
  for (const auto& [key, json] : whole.model.config)
    out += fmt::format("{}model.config.{} = {}\n", json == "null" ? "# --set " : "", key, json);
  return out;
}

}  // namespace strata::runtime
