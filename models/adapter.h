#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::models {

// The initialisation of A; B starts as zeros. kaiming: uniform with bound 1/sqrt(in); gaussian: normal with deviation
// 1/rank.
enum class AdapterInit : std::uint8_t { kaiming, gaussian };

// Modules by name, as in peft: a list of names, each a module's complete name or the end of one after a dot; or a
// Python regular expression that matches the complete name.
struct ModuleNames {
  std::vector<std::string> names;
  std::optional<std::string> pattern;

  bool empty() const { return names.empty() && !pattern; }
  friend bool operator==(const ModuleNames&, const ModuleNames&) = default;
};
inline constexpr std::string_view kMagnitude = ".lora_magnitude_vector";  // the suffix of the name of DoRA's tensor
inline constexpr std::int64_t kMaxAdapterRank = 1 << 16;
inline constexpr std::string_view kAllLinear = "all-linear";  // as a pattern in target_modules: every linear layer

// Low-rank adapters of linear layers (LoRA, Hu et al. 2021): y = W x + s B(A x), with trained A [rank, in] and B [out,
// rank] while the model is frozen. Fields have the names and meanings of peft's LoraConfig.
struct Adapter {
  std::int64_t rank = 8;
  double alpha = 16;
  ModuleNames target_modules = {{}, std::string(kAllLinear)}, exclude_modules = {};
  std::vector<std::string> modules_to_save = {};       // fully trained modules, by name suffixes
  std::vector<std::int64_t> layers_to_transform = {};  // only with a list of targets; empty: all
  // If true, modules_to_save may name an embedding that the output layer shares: the shared table is trained.
  bool ensure_weight_tying = false;
  bool rslora = false;  // s = alpha / sqrt(rank) instead of alpha / rank
  double dropout = 0;   // dropout of the input of A
  bool dora = false;    // also trains the magnitudes of W + s B A (Liu et al. 2024)
  AdapterInit init = AdapterInit::kaiming;
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};  // the first match applies
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
};

// The adapter of one linear layer, and the places of A and B in the unit's trained pool. rank 0: no adapter.
struct LowRank {
  std::size_t rank = 0;
  float scale = 0;
  std::size_t a = 0, b = 0;
  bool dora = false;
  std::size_t magnitude = 0;  // place of the magnitudes of all outputs, if dora

  friend auto operator<=>(const LowRank&, const LowRank&) = default;
};

// The adapter's rank and scale for a linear layer of this name; rank 0 if it is not a target.
LowRank low_rank_for(const Adapter& adapter, std::string_view module);
// The adapter with the layers of class scores (classifier, score) trained and saved too, as peft does.
std::shared_ptr<const Adapter> with_classifiers_saved(Adapter adapter);
// True if the names include this module. Here "all-linear" has no special meaning.
bool matches(const ModuleNames& names, std::string_view module);
// True if a pattern of rank_pattern or alpha_pattern matches this module.
bool matches_end(const std::string& pattern, std::string_view module);
// The number in a module's name that peft interprets as the layer: the last one that follows two names.
std::optional<std::int64_t> layer_of(std::string_view module);
// True if the tensor is fully trained: it lies in a module that modules_to_save names.
bool is_fully_trained(const Adapter& adapter, std::string_view tensor);
// Throws Error{usage} naming `key` if the pattern is not a Python regular expression, or its syntax is not supported.
void check_pattern(std::string_view key, const std::string& pattern);

}  // namespace strata::models
