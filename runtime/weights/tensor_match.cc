#include "runtime/weights/tensor_match.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace strata::runtime {
namespace {

// Finds a tensor by its name, or by its name in TensorFlow and the first BERT checkpoints. The vocabulary's bias has
// two names; if both are there, the decoder's is read, as in transformers 5.
class Names {
 public:
  explicit Names(std::span<const std::string> names) {
    for (std::size_t i = 0; i < names.size(); ++i) places_.emplace(names[i], i);
  }
  std::optional<std::size_t> find(const std::string& name) const {
    for (const auto& [older, of_decoder] : {std::pair{"cls.predictions.bias", "cls.predictions.decoder.bias"},
                                            {"lm_head.bias", "lm_head.decoder.bias"}}) {
      if (name != older && name != of_decoder) continue;
      for (const char* there : {of_decoder, older})
        if (const auto found = places_.find(there); found != places_.end()) return found->second;
    }
    if (const auto found = places_.find(name); found != places_.end()) return found->second;
    for (const auto& [now, then] : {std::pair{"LayerNorm.weight", "gamma"}, {"LayerNorm.bias", "beta"}}) {
      const std::string_view ending = now;
      if (!name.ends_with(ending)) continue;
      const auto found = places_.find(name.substr(0, name.size() - ending.size()) + "LayerNorm." + then);
      return found == places_.end() ? std::nullopt : std::optional(found->second);
    }
    return std::nullopt;
  }

 private:
  std::unordered_map<std::string_view, std::size_t> places_;
};

}  // namespace

std::optional<std::string> layer_of(std::string_view name, std::size_t dimensions) {
  constexpr std::string_view kWeight = ".weight";
  if (dimensions != 2 || !name.ends_with(kWeight)) return std::nullopt;
  return std::string(name.substr(0, name.size() - kWeight.size()));
}

std::string prefix_of_wrapper(std::span<const std::string> names, std::string_view wanted) {
  const std::string ending = "." + std::string(wanted);
  for (const std::string& name : names) {
    if (!name.ends_with(ending)) continue;
    std::string prefix = name.substr(0, name.size() - wanted.size());
    if (std::ranges::all_of(names, [&](const std::string& other) { return other.starts_with(prefix); })) return prefix;
  }
  return {};
}

TensorMatch match_tensors(const models::Model& model, std::span<const std::string> names, bool new_head) {
  const Names stored(names);
  const std::string anew = new_head ? model.loss_unit().score_layer() + "." : "";
  const std::string& prefix = model.optional_prefix;
  const auto& may_lack = model.drawn_if_missing;
  std::vector<bool> wanted(names.size());
  TensorMatch out;
  for (const auto& unit : model.units) {
    auto& places = out.places.emplace_back();
    for (const models::Parameter& p : unit->parameters()) {
      auto found = stored.find(p.name);
      if (!found && p.name.starts_with(prefix)) found = stored.find(p.name.substr(prefix.size()));
      if (found) wanted[*found] = true;
      const bool reinitialised = new_head && p.name.starts_with(anew);
      places.push_back(reinitialised ? std::nullopt : found);
      if (places.back() || p.of_adapter) continue;
      const bool random = reinitialised || std::ranges::find(may_lack, p.name) != may_lack.end();
      (random ? out.initialised : out.missing).push_back(p.name);
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (wanted[i]) continue;
    const bool left_out = std::ranges::any_of(model.ignored_suffixes,
                                              [&](const std::string& suffix) { return names[i].ends_with(suffix); });
    (left_out ? out.left_out : out.unknown).push_back(i);
  }
  return out;
}

}  // namespace strata::runtime
