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

// How A begins; B begins as zeros. kaiming: uniform with the bound 1/sqrt(in); gaussian: normal with deviation 1/rank.
enum class AdapterInit : std::uint8_t { kaiming, gaussian };

// Modules by name, as in peft: a list of names, each a module's whole name or its end after a dot; or a Python regular
// expression that matches the whole name.
struct ModuleNames {
  std::vector<std::string> names;
  std::optional<std::string> pattern;

  bool empty() const { return names.empty() && !pattern; }
  friend bool operator==(const ModuleNames&, const ModuleNames&) = default;
};
inline constexpr std::int64_t kMostRank = 1 << 16;
inline constexpr std::string_view kAllLinear = "all-linear";  // as ModuleNames::pattern: every linear layer

// Low-rank adapters of linear layers (LoRA, Hu et al. 2021): y = W x + s B(A x), with A [rank, in] and B [out, rank],
// which are trained while the model is frozen. The fields have the names and meanings of peft's LoraConfig.
struct Adapter {
  std::int64_t rank = 8;
  double alpha = 16;
  ModuleNames target_modules = {{}, std::string(kAllLinear)}, exclude_modules = {};
  std::vector<std::string> modules_to_save = {};       // trained whole: those whose names end so
  std::vector<std::int64_t> layers_to_transform = {};  // with a list of targets; empty: all
  bool rslora = false;                                 // s = alpha / sqrt(rank), not alpha / rank
  double dropout = 0;                                  // of what A multiplies
  bool dora = false;                                   // not supported, but known
  AdapterInit init = AdapterInit::kaiming;
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};  // the first that matches
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
};

// What the adapter adds to one linear layer, and where its tensors lie in the unit's trained pool. rank 0: nothing.
struct LowRank {
  std::size_t rank = 0;
  float scale = 0;
  std::size_t a = 0, b = 0;

  friend auto operator<=>(const LowRank&, const LowRank&) = default;
};

// The adapter's rank and scale for a linear layer of this name; rank 0 if it is not one of its targets.
LowRank low_rank_for(const Adapter& adapter, std::string_view module);
// The same, which also saves what scores classes (classifier, score), as peft does for classifiers.
std::shared_ptr<const Adapter> with_classifiers_saved(Adapter adapter);
// Whether the names are of this module; all-linear is of every one.
bool matches(const ModuleNames& names, std::string_view module);
// Whether the tensor is trained whole: one of the modules that it lies in is of modules_to_save.
bool is_saved_whole(const Adapter& adapter, std::string_view tensor);
// Throws Error{usage}, naming `key`, for a regular expression of Python that is none, or whose syntax is not supported.
void check_pattern(std::string_view key, const std::string& pattern);

}  // namespace strata::models
