#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/json/json_fault.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "runtime/weights/adapter/peft_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;

constexpr std::size_t kMaxBytes = std::size_t{16} << 20, kMaxDepth = 64;

// Looks up keys of an adapter_config.json.
class Keys {
 public:
  explicit Keys(const fs::path& path) : path_(path), text_(read_input(path, path.string(), kMaxBytes)) {
    if (parser_.parse(text_).get(root_) != simdjson::SUCCESS || !root_.is_object())
      fail(Exit::corrupt, "{}: expected an object in JSON, found {}", path.string(), found_in_json(text_, kMaxDepth));
    // Python would use the last of two equal keys, simdjson uses the first.
    std::set<std::string_view> seen;
    for (const auto field : all())
      if (!seen.insert(field.key).second) fail(Exit::corrupt, "{}: has the key {} twice", path.string(), field.key);
  }

  bool is_null(std::string_view key) const {
    element value;
    return root_[key].get(value) == simdjson::SUCCESS && value.is_null();
  }
  std::optional<element> find(std::string_view key) const {
    element value;
    if (root_[key].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }
  double number(std::string_view key, double otherwise) const {
    const auto value = find(key);
    double number = otherwise;
    if (value && value->get_double().get(number) != simdjson::SUCCESS) wrong(key, "a number");
    return number;
  }
  std::int64_t integer(std::string_view key, std::int64_t otherwise) const {
    const auto value = find(key);
    std::int64_t number = otherwise;
    if (value && value->get_int64().get(number) != simdjson::SUCCESS) wrong(key, "a whole number");
    return number;
  }
  bool flag(std::string_view key) const {
    const auto value = find(key);
    bool on = false;
    if (value && value->get_bool().get(on) != simdjson::SUCCESS) wrong(key, "true or false");
    return on;
  }
  std::string text(std::string_view key) const {
    const auto value = find(key);
    std::string_view text;
    if (value && value->get_string().get(text) != simdjson::SUCCESS) wrong(key, "a string");
    return std::string(text);
  }
  std::vector<std::string> texts(std::string_view key) const {
    const auto value = find(key);
    std::vector<std::string> out;
    if (!value) return out;
    simdjson::dom::array list;
    if (value->get_array().get(list) != simdjson::SUCCESS) wrong(key, "a list of strings");
    for (const element item : list) {
      std::string_view text;
      if (item.get_string().get(text) != simdjson::SUCCESS) wrong(key, "a list of strings");
      out.emplace_back(text);
    }
    return out;
  }
  models::ModuleNames modules(std::string_view key) const {
    const auto value = find(key);
    if (!value || !value->is_string()) return {texts(key), {}};
    std::string pattern = text(key);
    models::check_pattern(fmt::format("{}: {}", path_.string(), key), pattern);
    return {{}, std::move(pattern)};
  }
  std::vector<std::int64_t> layers(std::string_view key) const {
    const auto value = find(key);
    if (!value) return {};
    if (!value->is_array()) return {integer(key, 0)};
    std::vector<std::int64_t> out;
    const simdjson::dom::array list = value->get_array();
    for (const element item : list)
      if (item.get_int64().get(out.emplace_back()) != simdjson::SUCCESS) wrong(key, "a list of whole numbers");
    return out;
  }
  // The values of a pattern key: ranks, or numbers of any sign.
  template <typename T>
  std::vector<std::pair<std::string, T>> patterns(std::string_view key) const {
    constexpr bool kRanks = std::is_same_v<T, std::int64_t>;
    const std::string expected = kRanks
                                     ? fmt::format("an object of whole numbers from 1 to {}", models::kMaxAdapterRank)
                                     : "an object of numbers above 0";
    std::vector<std::pair<std::string, T>> out;
    const auto value = find(key);
    simdjson::dom::object object;
    if (!value) return out;
    if (value->get_object().get(object) != simdjson::SUCCESS) wrong(key, expected);
    for (const auto field : object) {
      double number = 0;
      const bool read = field.value.get_double().get(number) == simdjson::SUCCESS;
      const bool is_rank = number >= 1 && number <= models::kMaxAdapterRank && number == std::floor(number);
      if (!read || (kRanks ? !is_rank : std::abs(number) > 1e30)) wrong(key, expected);
      models::check_pattern(fmt::format("{}: {}", path_.string(), key), std::string(field.key));
      out.emplace_back(std::string(field.key), static_cast<T>(number));
    }
    return out;
  }

  // A value as it is written in the file, shortened.
  static std::string shown(element value) { return excerpt(simdjson::minify(value), 64); }
  simdjson::dom::object all() const { return root_.get_object(); }
  std::string name() const { return path_.string(); }
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const {
    fail(Exit::corrupt, "{}: expected {} at \"{}\", found {}", path_.string(), expected, key,
         is_null(key) ? "null" : shown(*find(key)));
  }

 private:
  const fs::path& path_;
  std::string text_;
  simdjson::dom::parser parser_;
  element root_;
};

std::string json_of(const models::ModuleNames& modules) {
  if (modules.pattern) return json_string(*modules.pattern);
  return modules.empty() ? "null" : JsonArray().add_all(modules.names).text();
}
template <typename T>
std::string json_of(const std::vector<std::pair<std::string, T>>& patterns) {
  JsonObject out;
  for (const auto& [pattern, number] : patterns) out.add(pattern, number);
  return out.text();
}

// Keys that are read, or that describe the file, the saving program, or an initialisation that the file replaces.
constexpr std::string_view kKnown[] = {"peft_type",
                                       "r",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "target_modules",
                                       "exclude_modules",
                                       "modules_to_save",
                                       "layers_to_transform",
                                       "use_rslora",
                                       "use_dora",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "bias",
                                       "init_lora_weights",
                                       "fan_in_fan_out",
                                       "base_model_name_or_path",
                                       "task_type",
                                       "inference_mode",
                                       "revision",
                                       "auto_mapping",
                                       "peft_version",
                                       "runtime_config",
                                       "megatron_core",
                                       "qalora_group_size",
                                       "ensure_weight_tying",
                                       "eva_config",
                                       "loftq_config",
                                       "corda_config",
                                       "lora_ga_config",
                                       "merge_weights"};
// Keys that concern only the training, or how a program stores the adapter. The adapter computes the same without them.
constexpr std::string_view kOfTraining[] = {"velora_config",  "megatron_config", "lora_dtype",
                                            "lorap_lr_ratio", "lorap_emb_lr",    "swift_version"};

// Keys with unsupported mathematics. They are accepted if they are off, empty or null.
struct Foreign {
  std::string_view key, what;
  bool merges = true;  // peft can merge such an adapter into its model
};
constexpr std::string_view kMerge =
    "merge it into its model with peft (merge_and_unload, save_pretrained), and give the result";
constexpr std::string_view kOther = "it computes something other than W x + s B A x";
constexpr Foreign kForeign[] = {
    {"trainable_token_indices", "training single rows of the embedding is not supported"},
    {"target_parameters", "only adapters of linear layers' weights are supported"},
    {"layer_replication", "a model that repeats layers of its base is not supported", false},
    {"lora_bias", "a bias next to B is not supported"},
    {"use_qalora", kOther},
    {"use_bdlora", kOther},
    {"use_mora", kOther},
    {"use_hira", kOther},
    {"use_wora", kOther},
    {"kasa_config", kOther},
    {"monteclora_config", kOther},
    {"arrow_config", "a choice between several adapters for each token is not supported", false},
    {"alora_invocation_tokens", "an adapter that begins to act at certain tokens (activated LoRA) is not supported",
     false},
    {"enable_lora", "adapters of parts of a joined layer are not supported"},
};

bool is_off(element value) {
  const std::string text = simdjson::minify(value);
  return text == "null" || text == "false" || text == "{}" || text == "[]" || text == "\"\"";
}

// Initialisations that subtract the first B A from the model's weights, or replace these: the file is then the
// difference from weights that were not saved.
bool changes_base(std::string init) {
  std::ranges::transform(init, init.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  constexpr std::string_view kBegins[] = {"pissa", "olora", "corda", "loftq", "lora_ga", "lora-ga", "milora"};
  return std::ranges::any_of(kBegins, [&](std::string_view begin) { return init.starts_with(begin); });
}

void refuse_other_mathematics(const Keys& keys) {
  if (!keys.find("peft_type"))
    fail(Exit::usage, "{} has no peft_type, so it does not describe a peft adapter", keys.name());
  if (const std::string type = keys.text("peft_type"); type != "LORA")
    fail(Exit::usage, "{}: peft_type is \"{}\", but only LORA is supported", keys.name(), type);
  if (const std::string bias = keys.text("bias"); !bias.empty() && bias != "none")
    fail(Exit::usage, "{}: bias = \"{}\" is not supported: only adapters that leave biases as they are; {}",
         keys.name(), bias, kMerge);
  for (const Foreign& foreign : kForeign)
    if (const auto value = keys.find(foreign.key); value && !is_off(*value))
      fail(Exit::usage, "{}: {} = {}: {}; {}", keys.name(), foreign.key, Keys::shown(*value), foreign.what,
           foreign.merges ? kMerge : "train and run it with peft");
  // The names of the list that layers_to_transform numbers. Every family here has one list of layers.
  constexpr std::string_view kLists[] = {"layers", "layer", "h", "encoder.layer", "encoder.layers"};
  if (const auto value = keys.find("layers_pattern"); value && !is_off(*value))
    for (const models::ModuleNames names = keys.modules("layers_pattern");
         const std::string& name : names.pattern ? std::vector{*names.pattern} : names.names)
      if (std::ranges::find(kLists, name) == std::end(kLists))
        fail(Exit::usage, "{}: layers_pattern = {}: no family here has layers of that name", keys.name(),
             Keys::shown(*value));
}

models::AdapterInit init_of(const Keys& keys, std::vector<std::string>& notes) {
  const auto value = keys.find("init_lora_weights");
  if (!value || !value->is_string()) return models::AdapterInit::kaiming;
  const std::string init = keys.text("init_lora_weights");
  if (changes_base(init) && (init.starts_with("loftq") || init.starts_with("milora")))
    fail(Exit::usage,
         "{}: init_lora_weights = \"{}\" changes the model's own weights and is not supported: merge the adapter with "
         "the model that it was trained on (peft's merge_and_unload, save_pretrained), and give the result",
         keys.name(), init);
  if (changes_base(init))
    fail(Exit::usage,
         "{}: init_lora_weights = \"{}\" changes the model's own weights and is not supported: convert the adapter to "
         "plain LoRA with peft (path_initial_model_for_weight_conversion)",
         keys.name(), init);
  if (init == "mica")
    notes.push_back(
        fmt::format("{}: init_lora_weights = \"mica\": peft leaves B as it was initialised, but training that "
                    "continues from this adapter here trains A and B",
                    keys.name()));
  constexpr std::string_view kHarmless[] = {"gaussian", "eva", "orthogonal", "mica", "true", "false"};
  if (std::ranges::find(kHarmless, init) == std::end(kHarmless))
    notes.push_back(fmt::format(
        "{}: init_lora_weights = {} is not known: the adapter is read as one that left the model's own weights as they "
        "were",
        keys.name(), json_string(init)));
  return init == "gaussian" ? models::AdapterInit::gaussian : models::AdapterInit::kaiming;
}

// peft accepts every alpha, and merges an adapter whose scale is 0 or negative.
void require_positive(const Keys& keys, const std::string& name, double alpha) {
  if (alpha <= 0)
    fail(Exit::usage, "{}: {} = {} is not supported, because it must be above 0; {}", keys.name(), name, alpha, kMerge);
}

// Throws Error{usage} for a key that is not known, and adds one note about all keys that change nothing.
void name_ignored(const Keys& keys, std::vector<std::string>& notes) {
  std::vector<std::string> names;
  for (const auto field : keys.all()) {
    const bool known = std::ranges::find(kKnown, field.key) != std::end(kKnown) || field.key == "layers_pattern" ||
                       std::ranges::find(kForeign, field.key, &Foreign::key) != std::end(kForeign);
    if (known || is_off(field.value)) continue;
    if (std::ranges::find(kOfTraining, field.key) == std::end(kOfTraining))
      fail(Exit::usage,
           "{}: {} = {} is not known, and may change what the adapter computes: delete the key if it concerns only "
           "training; otherwise {}",
           keys.name(), field.key, Keys::shown(field.value), kMerge);
    names.emplace_back(field.key);
  }
  if (names.empty()) return;
  std::ranges::sort(names);
  notes.push_back(fmt::format("{} has {} that {} not read and {} nothing that an adapter computes: {}", keys.name(),
                              counted(names.size(), "key"), names.size() == 1 ? "is" : "are",
                              names.size() == 1 ? "changes" : "change", fmt::join(names, ", ")));
}

}  // namespace

PeftConfig read_peft_config(const fs::path& folder) {
  const fs::path path = folder / kPeftConfigName;
  const Keys keys(path);
  refuse_other_mathematics(keys);
  PeftConfig out;
  models::Adapter& a = out.adapter;
  // If the key is missing, peft uses its default. If it is null, peft fails.
  if (keys.is_null("r")) keys.wrong("r", "a rank");
  if (keys.is_null("lora_alpha")) keys.wrong("lora_alpha", "a number above 0");
  a.rank = keys.integer("r", 8);
  a.alpha = keys.number("lora_alpha", 8);
  if (a.rank < 1 || a.rank > models::kMaxAdapterRank) keys.wrong("r", "a rank");
  require_positive(keys, "lora_alpha", a.alpha);
  a.dropout = keys.number("lora_dropout", 0);
  if (!(a.dropout >= 0 && a.dropout < 1)) keys.wrong("lora_dropout", "a number from 0 to below 1");
  a.target_modules = keys.modules("target_modules");
  a.exclude_modules = keys.modules("exclude_modules");
  a.modules_to_save = keys.texts("modules_to_save");
  a.ensure_weight_tying = keys.flag("ensure_weight_tying");
  a.layers_to_transform = keys.layers("layers_to_transform");
  a.rslora = keys.flag("use_rslora");
  a.dora = keys.flag("use_dora");
  a.init = init_of(keys, out.notes);
  a.rank_pattern = keys.patterns<std::int64_t>("rank_pattern");
  a.alpha_pattern = keys.patterns<double>("alpha_pattern");
  for (const auto& [pattern, alpha] : a.alpha_pattern)
    require_positive(keys, fmt::format("alpha_pattern's {}", json_string(pattern)), alpha);
  if (a.target_modules.empty())
    fail(Exit::usage, "{} names no target_modules, which say where the adapter belongs", path.string());
  out.base = keys.text("base_model_name_or_path");
  out.task = keys.text("task_type");
  name_ignored(keys, out.notes);
  return out;
}

std::string peft_config_json(const PeftConfig& config, const std::string& task) {
  const models::Adapter& a = config.adapter;
  const auto text_or_null = [](const std::string& text) { return text.empty() ? "null" : json_string(text); };
  const std::string layers = a.layers_to_transform.empty() ? "null" : JsonArray().add_all(a.layers_to_transform).text();
  const std::string saved = a.modules_to_save.empty() ? "null" : JsonArray().add_all(a.modules_to_save).text();
  JsonObject out(JsonLayout::lines);
  out.add("alpha_pattern", JsonText{json_of(a.alpha_pattern)})
      .add("auto_mapping", JsonText{"null"})
      .add("base_model_name_or_path", JsonText{text_or_null(config.base)})
      .add("bias", "none")
      .add("exclude_modules", JsonText{json_of(a.exclude_modules)})
      .add("fan_in_fan_out", config.input_major)
      .add("inference_mode", true)
      .add("init_lora_weights", JsonText{a.init == models::AdapterInit::gaussian ? "\"gaussian\"" : "true"})
      .add("layer_replication", JsonText{"null"})
      .add("layers_pattern", JsonText{"null"})
      .add("layers_to_transform", JsonText{layers})
      .add("lora_alpha", a.alpha)
      .add("lora_dropout", a.dropout)
      .add("megatron_config", JsonText{"null"})
      .add("megatron_core", "megatron.core")
      .add("modules_to_save", JsonText{saved})
      .add("peft_type", "LORA")
      .add("r", a.rank)
      .add("rank_pattern", JsonText{json_of(a.rank_pattern)})
      .add("revision", JsonText{"null"})
      .add("target_modules", JsonText{json_of(a.target_modules)})
      .add("task_type", JsonText{text_or_null(task)})
      .add("use_dora", a.dora)
      .add("use_rslora", a.rslora);
  // Written only if it is set, because peft before 0.18 refuses the key.
  if (a.ensure_weight_tying) out.add("ensure_weight_tying", true);
  return out.text() + "\n";
}

// llama.cpp's converter ends at any tensor other than A and B, and vLLM at use_dora and modules_to_save. llama.cpp's
// scale is lora_alpha over the rank of each B, vLLM's is one number for all layers.
std::vector<std::string> notes_of_readers(const models::Adapter& adapter) {
  constexpr std::string_view kAdvice = "for it, export the merged model (strata export without --adapter)";
  if (adapter.dora || !adapter.modules_to_save.empty())
    return {
        fmt::format("peft reads the folder; llama.cpp (convert_lora_to_gguf.py) and vLLM (--lora-modules) refuse {}: "
                    "for them, export the merged model (strata export without --adapter)",
                    adapter.dora ? "DoRA" : "adapters with modules_to_save")};
  std::vector<std::string> notes;
  const auto add = [&](const char* program, bool first, const char* key, bool second, const char* other) {
    if (first || second)
      notes.push_back(fmt::format("{} does not read {}{}{}, and would scale the adapter differently from peft: {}",
                                  program, first ? key : "", first && second ? " and " : "", second ? other : "",
                                  kAdvice));
  };
  add("llama.cpp (convert_lora_to_gguf.py)", adapter.rslora, "use_rslora", !adapter.alpha_pattern.empty(),
      "alpha_pattern");
  add("vLLM (--lora-modules)", !adapter.rank_pattern.empty(), "rank_pattern", !adapter.alpha_pattern.empty(),
      "alpha_pattern");
  return notes;
}

}  // namespace strata::runtime
