#include "models/classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "models/families/families.h"
#include "models/files/config.h"

namespace strata::models {
namespace {

// Labels of texts are looked up by their class names, and results are reported with them.
void require_different(const Config& config, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, std::size_t> first;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto [known, is_new] = first.emplace(names[i], i);
    if (is_new) continue;
    const std::string key = fmt::format("id2label.{}", i);
    const bool given = config.overridden(key) || config.overridden(fmt::format("id2label.{}", known->second));
    fail(given ? Exit::usage : Exit::corrupt,
         "{} is \"{}\", as is that of class {}: give each class a different name, such as --set model.config.{}={}",
         config.describe(key), names[i], known->second, key, fmt::format("{}{}", kNumberedLabel, i));
  }
}

void read_names(const Config& config, Classes& out) {
  constexpr std::string_view kWanted =
      R"(an object that names the classes, counted from 0, such as {"0": "no", "1": "yes"})";
  config.require_object("id2label", kWanted);
  const std::vector<std::string> keys = config.keys_inside("id2label");
  for (std::string key = "id2label.0"; config.has(key); key = fmt::format("id2label.{}", out.names.size())) {
    out.names.push_back(config.require_label(key));
    out.named = out.named || out.names.back() != fmt::format("LABEL_{}", out.names.size() - 1);
  }
  if (out.names.size() == keys.size()) return require_different(config, out.names);
  const bool given = config.overridden("id2label." + keys.front());
  fail(given ? Exit::usage : Exit::corrupt, "{} has the keys {}{}, but no \"{}\": expected {}",
       given ? "model.config.id2label" : config.describe("id2label"),
       fmt::join(std::span(keys).first(std::min<std::size_t>(keys.size(), 8)), ", "), keys.size() > 8 ? ", ..." : "",
       out.names.size(), kWanted);
}

}  // namespace

Classes read_classes(const Config& config, Objective objective) {
  constexpr std::size_t kMaxClasses = std::size_t{1} << 16;
  Classes out;
  if (objective == Objective::causal_lm || objective == Objective::masked_lm) return out;
  read_names(config, out);
  if (config.has("num_labels")) {
    const std::size_t count = size_of_key(config, "num_labels", kMaxClasses);
    // As in transformers, a given number of labels replaces default names.
    const bool replaces = config.overridden("num_labels") && !config.overridden("id2label.0") && !out.named;
    if (!out.names.empty() && out.names.size() != count && !replaces)
      fail(config.overridden("num_labels") ? Exit::usage : Exit::corrupt,
           "{} is {}, and id2label names {} ({}): leave num_labels out, or make id2label match it",
           config.describe("num_labels"), count,
           out.names.size() == 1 ? "one class" : fmt::format("{} classes", out.names.size()),
           fmt::join(std::span(out.names).first(std::min<std::size_t>(out.names.size(), 8)), ", "));
    if (out.names.size() != count) out.names.clear();
    out.counted = true;
    for (std::size_t i = out.names.size(); i < count; ++i) out.names.push_back(fmt::format("LABEL_{}", i));
  }
  const std::string problem = config.text_or("problem_type", "");
  // Nothing sets the number: transformers' default is two classes, and a regression has one.
  if (out.names.empty()) out.names = {"LABEL_0", "LABEL_1"};
  if (problem == "regression" && !out.counted && !config.has("id2label.0")) out.names = {"LABEL_0"};
  if (problem == "regression" || (problem.empty() && out.names.size() == 1))
    out.target = device::ClassTarget::number;
  else if (problem == kPrediction)
    out.target = device::ClassTarget::none;
  else if (problem == "multi_label_classification")
    out.target = device::ClassTarget::many;
  else if (!problem.empty() && problem != "single_label_classification")
    fail(Exit::usage, "{} is \"{}\": it must be regression, single_label_classification or multi_label_classification",
         config.describe("problem_type"), problem);
  if (objective == Objective::token_classification && problem != kPrediction) out.target = device::ClassTarget::one;
  if (out.target == device::ClassTarget::number && out.names.size() > 1)
    fail(Exit::usage, "{} is \"regression\" with {} labels: only one is supported", config.describe("problem_type"),
         out.names.size());
  return out;
}

bool are_entity_tags(std::span<const std::string> names) {
  const auto begins = [](const std::string& name) { return name.starts_with("B-") || name.starts_with("I-"); };
  return std::ranges::any_of(names, begins) &&
         std::ranges::all_of(names, [&](const std::string& name) { return name == "O" || begins(name); });
}

}  // namespace strata::models
