#include "runtime/weights/peft_folder.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/json_fault.h"
#include "base/json_writer.h"
#include "models/files/safetensors.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using simdjson::dom::element;

constexpr std::size_t kMostBytes = std::size_t{16} << 20, kMaxDepth = 64;

// Looks up keys of an adapter_config.json; refuse_others() checks the keys that are not supported.
class Keys {
 public:
  explicit Keys(const fs::path& path) : path_(path), text_(read_input(path, path.string(), kMostBytes)) {
    if (parser_.parse(text_).get(root_) != simdjson::SUCCESS || !root_.is_object())
      fail(Exit::corrupt, "{}: expected an object in JSON, found {}", path.string(), found_in_json(text_, kMaxDepth));
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
  std::int64_t whole(std::string_view key, std::int64_t otherwise) const {
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
    if (!value->is_array()) return {whole(key, 0)};
    std::vector<std::int64_t> out;
    const simdjson::dom::array list = value->get_array();
    for (const element item : list)
      if (item.get_int64().get(out.emplace_back()) != simdjson::SUCCESS) wrong(key, "a list of whole numbers");
    return out;
  }
  // Of ranks, or of other numbers above 0.
  template <typename T>
  std::vector<std::pair<std::string, T>> patterns(std::string_view key) const {
    constexpr bool kRanks = std::is_same_v<T, std::int64_t>;
    const std::string expected = kRanks ? fmt::format("an object of whole numbers from 1 to {}", models::kMostRank)
                                        : "an object of numbers above 0";
    std::vector<std::pair<std::string, T>> out;
    const auto value = find(key);
    simdjson::dom::object object;
    if (!value) return out;
    if (value->get_object().get(object) != simdjson::SUCCESS) wrong(key, expected);
    for (const auto field : object) {
      double number = 0;
      const bool read = field.value.get_double().get(number) == simdjson::SUCCESS && number > 0;
      if (!read || (kRanks ? number > models::kMostRank || number != std::floor(number) : number > 1e30))
        wrong(key, expected);
      models::check_pattern(fmt::format("{}: {}", path_.string(), key), std::string(field.key));
      out.emplace_back(std::string(field.key), static_cast<T>(number));
    }
    return out;
  }

  // Refuses unsupported keys of peft unless they are at their defaults: off, empty or null.
  void refuse_others(std::span<const std::string_view> known) const {
    const simdjson::dom::object object = root_.get_object();
    for (const auto field : object) {
      if (std::ranges::find(known, field.key) != known.end()) continue;
      const std::string value = simdjson::minify(field.value);
      if (value == "null" || value == "false" || value == "{}" || value == "[]" || value == "\"\"") continue;
      fail(Exit::usage, "{}: {} = {} is not supported: only adapters without it are read", path_.string(), field.key,
           value.substr(0, 64));
    }
  }
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const {
    fail(Exit::corrupt, "{}: expected {} at \"{}\", found {}", path_.string(), expected, key,
         std::string(simdjson::minify(*find(key))).substr(0, 64));
  }

 private:
  const fs::path& path_;
  std::string text_;
  simdjson::dom::parser parser_;
  element root_;
};

// The trained weights, from a peft file.
class PeftWeights final : public WeightSource {
 public:
  PeftWeights(const fs::path& folder, const models::Model& model)
      : file_(models::Safetensors::open(folder / kPeftWeightsName)) {
    std::vector<bool> wanted(file_.tensors().size());
    for (const auto& unit : model.units) {
      auto& tensors = tensors_.emplace_back();
      for (const models::Parameter& p : unit->parameters()) {
        const models::StoredTensor*& tensor = tensors.emplace_back(nullptr);
        if (!p.trained()) continue;
        const std::string name = kPeftPrefix + p.name;
        tensor = file_.find(name);
        const std::vector<std::uint64_t> shape(p.shape.begin(), p.shape.end());
        if (!tensor)
          fail(Exit::usage, "{} is an adapter of another model: it has no {}, which this {} model's has",
               folder.string(), name, model.family);
        if (!tensor->readable())
          fail(Exit::usage, "{}: {} is stored as {}, and adapters are read from F32, BF16, F16 or F64",
               (folder / kPeftWeightsName).string(), name, tensor->dtype);
        if (tensor->shape != shape)
          fail(Exit::usage,
               "{} is an adapter of another model, or its {} says another rank: its {} is [{}], and that of this {} "
               "model is [{}]",
               folder.string(), kPeftConfigName, name, fmt::join(tensor->shape, ", "), model.family,
               fmt::join(shape, ", "));
        wanted[static_cast<std::size_t>(tensor - file_.tensors().data())] = true;
      }
    }
    const auto other = std::ranges::find(wanted, false);
    if (other != wanted.end())
      fail(Exit::usage, "{} has {}, for which this {} model has no place: it is an adapter of another model",
           folder.string(), file_.tensors()[static_cast<std::size_t>(other - wanted.begin())].name, model.family);
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    const models::StoredTensor& tensor = *tensors_[unit][parameter];
    models::read_elements(tensor, begin, out);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (!std::isfinite(out[i]))
        fail(Exit::corrupt, "{}: tensor {} holds {} at element {}, but weights must be finite", tensor.file.string(),
             tensor.name, out[i], begin + i);
  }
  std::vector<comm::Seen> seen() const override {
    std::vector<comm::Seen> all;
    for (const auto& tensors : tensors_)
      for (const models::StoredTensor* tensor : tensors)
        if (tensor)
          all.push_back({fmt::format("tensor {} of {}", tensor->name, tensor->file.string()),
                         comm::print_of(tensor->bytes, comm::of_tensors(tensor->bytes.size()))});
    return all;
  }

 private:
  models::Safetensors file_;
  std::vector<std::vector<const models::StoredTensor*>> tensors_;  // by unit and parameter; null: frozen
};

class JoinedWeights final : public WeightSource {
 public:
  // `trained`: null if `base` has everything.
  JoinedWeights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> trained, const models::Model& model,
                Base wanted)
      : base_(std::move(base)), trained_(std::move(trained)), model_(model), wanted_(std::move(wanted)) {}

  Base base() const override { return wanted_; }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    source_of(unit, parameter).read(unit, parameter, begin, out);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    source_of(unit, parameter).prefetch(unit, parameter, begin, count);
  }
  bool quantised(std::size_t unit, std::size_t parameter, device::StorageFormat format) const override {
    return source_of(unit, parameter).quantised(unit, parameter, format);
  }
  void read_block(std::size_t unit, std::size_t parameter, std::size_t begin,
                  std::span<std::byte> block) const override {
    source_of(unit, parameter).read_block(unit, parameter, begin, block);
  }
  std::vector<comm::Seen> seen() const override {
    std::vector<comm::Seen> all = base_->seen();
    if (!trained_) return all;
    const std::vector<comm::Seen> more = trained_->seen();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<comm::Seen> seen_as_read() const override { return base_->seen_as_read(); }
  std::vector<std::string> drawn() const override {
    std::vector<std::string> names = base_->drawn();
    if (!trained_) return names;
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::any_of(model_.units, [&](const auto& unit) {
        return std::ranges::any_of(unit->parameters(),
                                   [&](const models::Parameter& p) { return p.trained() && p.name == name; });
      });
    });
    return names;
  }
  std::size_t rounded() const override { return base_->rounded(); }
  std::vector<std::string> left_out() const override { return base_->left_out(); }

 private:
  const WeightSource& source_of(std::size_t unit, std::size_t parameter) const {
    return trained_ && model_.units[unit]->parameters()[parameter].trained() ? *trained_ : *base_;
  }

  std::unique_ptr<WeightSource> base_, trained_;
  const models::Model& model_;
  Base wanted_;
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

}  // namespace

PeftConfig read_peft_config(const fs::path& folder) {
  const fs::path path = folder / kPeftConfigName;
  const Keys keys(path);
  // Keys that are read below, or that do not affect what an adapter computes.
  static constexpr std::string_view kKnown[] = {"peft_type",
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
                                                "qalora_group_size"};
  if (const std::string type = keys.text("peft_type"); type != "LORA")
    fail(Exit::usage, "{}: peft_type is \"{}\", which is not supported; LORA is", path.string(), type);
  if (const std::string bias = keys.text("bias"); !bias.empty() && bias != "none")
    fail(Exit::usage, "{}: bias = \"{}\" is not supported: only adapters that leave biases as they are", path.string(),
         bias);
  if (const auto init = keys.find("init_lora_weights");
      init && init->is_string() && keys.text("init_lora_weights") != "gaussian")
    fail(Exit::usage,
         "{}: init_lora_weights = \"{}\" changes the model's own weights and is not supported: convert the adapter to "
         "plain LoRA with peft (path_initial_model_for_weight_conversion)",
         path.string(), keys.text("init_lora_weights"));
  keys.refuse_others(kKnown);
  PeftConfig out;
  models::Adapter& a = out.adapter;
  a.rank = keys.whole("r", 8);
  a.alpha = keys.number("lora_alpha", 8);
  if (a.rank < 1 || a.rank > models::kMostRank) keys.wrong("r", "a rank");
  if (!(a.alpha > 0)) keys.wrong("lora_alpha", "a number above 0");
  a.dropout = keys.number("lora_dropout", 0);
  if (!(a.dropout >= 0 && a.dropout < 1)) keys.wrong("lora_dropout", "a number from 0 to below 1");
  a.target_modules = keys.modules("target_modules");
  a.exclude_modules = keys.modules("exclude_modules");
  a.modules_to_save = keys.texts("modules_to_save");
  a.layers_to_transform = keys.layers("layers_to_transform");
  a.rslora = keys.flag("use_rslora");
  a.dora = keys.flag("use_dora");
  a.init = keys.find("init_lora_weights") && keys.find("init_lora_weights")->is_string() ? models::AdapterInit::gaussian
                                                                                         : models::AdapterInit::kaiming;
  a.rank_pattern = keys.patterns<std::int64_t>("rank_pattern");
  a.alpha_pattern = keys.patterns<double>("alpha_pattern");
  if (a.target_modules.empty())
    fail(Exit::usage, "{}: it names no target_modules, which say where the adapter belongs", path.string());
  out.base = keys.text("base_model_name_or_path");
  return out;
}

std::string peft_config_json(const PeftConfig& config, const std::string& task) {
  const models::Adapter& a = config.adapter;
  const auto text_or_null = [](const std::string& text) { return text.empty() ? "null" : json_string(text); };
  const std::string layers = a.layers_to_transform.empty() ? "null" : JsonArray().add_all(a.layers_to_transform).text();
  const std::string saved = a.modules_to_save.empty() ? "null" : JsonArray().add_all(a.modules_to_save).text();
  return JsonObject(JsonLayout::lines)
             .add("alpha_pattern", JsonText{json_of(a.alpha_pattern)})
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
             .add("use_rslora", a.rslora)
             .text() +
         "\n";
}

std::unique_ptr<WeightSource> joined_weights(std::unique_ptr<WeightSource> base, std::unique_ptr<WeightSource> trained,
                                             const models::Model& model, WeightSource::Base wanted) {
  return std::make_unique<JoinedWeights>(std::move(base), std::move(trained), model, std::move(wanted));
}

std::unique_ptr<WeightSource> require_hash(std::unique_ptr<WeightSource> weights, WeightSource::Base wanted,
                                           const models::Model& model) {
  return std::make_unique<JoinedWeights>(std::move(weights), nullptr, model, std::move(wanted));
}

std::unique_ptr<WeightSource> peft_weights(std::unique_ptr<WeightSource> base, const fs::path& folder,
                                           const models::Model& model) {
  return joined_weights(std::move(base), std::make_unique<PeftWeights>(folder, model), model);
}

}  // namespace strata::runtime
