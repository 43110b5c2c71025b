#include "models/adapter.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/error.h"
#include "base/number.h"
#include "models/files/python.h"

namespace strata::models {
namespace {

constexpr std::size_t kMaxPattern = 4096;

bool ends_as(std::string_view module, std::string_view name) {
  return module == name ||
         (module.size() > name.size() && module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

// The value of the first pattern that matches the module, otherwise the default.
template <typename T>
T of_pattern(const std::vector<std::pair<std::string, T>>& table, std::string_view module, T otherwise) {
  for (const auto& [pattern, value] : table)
    if (matches_end(pattern, module)) return value;
  return otherwise;
}

// As in peft, a saved module, or a module inside one, is not a target.
bool lies_in_saved(const Adapter& adapter, std::string_view module) {
  return std::ranges::any_of(adapter.modules_to_save, [&](const std::string& saved) {
    for (std::size_t at = 0; at <= module.size();) {
      const std::string_view rest = module.substr(at);
      if (rest == saved || (rest.starts_with(saved) && rest[saved.size()] == '.')) return true;
      const std::size_t dot = module.find('.', at);
      if (dot == std::string_view::npos) return false;
      at = dot + 1;
    }
    return false;
  });
}

bool is_target(const Adapter& adapter, std::string_view module) {
  if (matches(adapter.exclude_modules, module) || lies_in_saved(adapter, module)) return false;
  const ModuleNames& targets = adapter.target_modules;
  if (targets.pattern != kAllLinear && !matches(targets, module)) return false;
  const auto& layers = adapter.layers_to_transform;
  // A module given by its complete name is a target in any layer.
  if (layers.empty() || targets.pattern || std::ranges::find(targets.names, module) != targets.names.end()) return true;
  const auto layer = layer_of(module);
  return layer && std::ranges::find(layers, *layer) != layers.end();
}

}  // namespace

bool matches_end(const std::string& pattern, std::string_view module) {
  return matches_whole("(?:.*\\.)?(?:" + pattern + ")", module);
}

std::optional<std::int64_t> layer_of(std::string_view module) {
  static const std::regex kLayer(R"(.*\.[^.]*\.(\d+)\..*)");
  std::match_results<std::string_view::const_iterator> found;
  if (!std::regex_match(module.begin(), module.end(), found, kLayer)) return std::nullopt;
  return parse_number<std::int64_t>(found[1].str());
}

bool matches(const ModuleNames& names, std::string_view module) {
  if (names.pattern) return matches_whole(*names.pattern, module);
  return std::ranges::any_of(names.names, [&](const std::string& name) { return ends_as(module, name); });
}

LowRank low_rank_for(const Adapter& adapter, std::string_view module) {
  if (!is_target(adapter, module)) return {};
  const std::int64_t rank = of_pattern(adapter.rank_pattern, module, adapter.rank);
  const double alpha = of_pattern(adapter.alpha_pattern, module, adapter.alpha);
  const auto divisor = static_cast<double>(rank);
  LowRank out{static_cast<std::size_t>(rank),
              static_cast<float>(alpha / (adapter.rslora ? std::sqrt(divisor) : divisor))};
  out.dora = adapter.dora;
  return out;
}

std::shared_ptr<const Adapter> with_classifiers_saved(Adapter adapter) {
  for (const char* scores : {"classifier", "score"})
    if (std::ranges::find(adapter.modules_to_save, scores) == adapter.modules_to_save.end())
      adapter.modules_to_save.emplace_back(scores);
  return std::make_shared<const Adapter>(std::move(adapter));
}

bool is_fully_trained(const Adapter& adapter, std::string_view tensor) {
  return std::ranges::any_of(adapter.modules_to_save, [&](const std::string& saved) {
    for (std::size_t dot = tensor.find('.'); dot != std::string_view::npos; dot = tensor.find('.', dot + 1))
      if (tensor.substr(0, dot).ends_with(saved)) return true;
    return false;
  });
}

void check_pattern(std::string_view key, const std::string& pattern) {
  if (pattern.size() > kMaxPattern)
    fail(Exit::usage, "{}: the regular expression has {} characters, and at most {} are supported", key, pattern.size(),
         kMaxPattern);
  if (const auto syntax = foreign_syntax(pattern))
    fail(Exit::usage, "{} = {}: a regular expression with {} is not supported: write the pattern without it", key,
         pattern, *syntax);
  try {
    (void)matches_whole(pattern, "");
  } catch (const std::regex_error&) {  // its message names the library's limits, or a wrong cause
    fail(Exit::usage, "{} = {} is not a valid regular expression, or is too large: write module names as a list", key,
         pattern);
  }
}

}  // namespace strata::models
