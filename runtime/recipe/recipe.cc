#include "runtime/recipe/recipe.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/toml_file.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kConfigPrefix = "model.config.";

// One assignment of the recipe or of the command line.
struct Assignment {
  std::string key;
  const toml::node* node;
  std::string where;  // "recipe.toml, line 3" or "--set"
  bool null = false;  // JSON's null, below model.config
};

// A float that is still one where it is read: 5.0, not 5.
std::string float_text(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // n: of inf and nan
}

// A value as errors show it.
std::string shown(const toml::node& node) {
  std::string text;
  if (const auto* number = node.as_floating_point()) {
    text = float_text(number->get());
  } else if (const auto* string = node.as_string()) {
    text = json_string(string->get());
  } else if (const auto* array = node.as_array()) {
    for (const toml::node& item : *array) text += (text.empty() ? "[" : ", ") + shown(item);
    text = text.empty() ? "[]" : text + "]";
  } else {
    std::ostringstream out;
    node.visit([&](const auto& typed) { out << typed; });
    text = out.str();
  }
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

std::optional<RecipeValue> value_of(const toml::node& node) {
  RecipeValue out{.value = false, .shown = shown(node)};
  if (const auto* flag = node.as_boolean()) {
    out.value = flag->get();
  } else if (const auto* integer = node.as_integer()) {
    out.value = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    out.value = number->get();
  } else if (const auto* text = node.as_string()) {
    out.value = text->get();
  } else if (const auto* array = node.as_array()) {
    std::vector<RecipeValue> items;
    for (const toml::node& item : *array) {
      auto value = value_of(item);
      if (!value) return std::nullopt;
      items.push_back(std::move(*value));
    }
    out.value = std::move(items);
  } else if (const auto* table = node.as_table()) {
    RecipeTable entries;
    for (const auto& [name, item] : *table) {
      auto value = value_of(item);
      if (!value) return std::nullopt;
      entries.emplace_back(std::string(name.str()), std::move(*value));
    }
    out.value = std::move(entries);
  } else {
    return std::nullopt;  // dates and times: no key takes them
  }
  return out;
}

std::string json_of(const toml::node& node, const std::string& key) {
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (const auto* number = node.as_floating_point()) {
    const double x = number->get();
    if (x - x != 0) fail(Exit::usage, "{} = {}: config.json has no such number", key, shown(node));
    return float_text(x);
  }
  if (const auto* text = node.as_string()) return json_string(text->get());
  std::string out;
  if (const auto* array = node.as_array()) {
    for (const toml::node& item : *array) out += (out.empty() ? "" : ",") + json_of(item, key);
    return "[" + out + "]";
  }
  if (const auto* table = node.as_table()) {
    for (const auto& [name, item] : *table) {
      out += (out.empty() ? "" : ",") + json_string(name.str()) + ":" + json_of(item, key);
    }
    return "{" + out + "}";
  }
  fail(Exit::usage, "{} = {}: config.json has no dates or times", key, shown(node));
}

// Tables become dotted keys; below model.config an inline table stays one value, which replaces an object whole.
void flatten(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<Assignment>& out) {
  for (const auto& [name, node] : table) {
    std::string key = prefix + std::string(name.str());
    const bool config = key.starts_with(kConfigPrefix);
    if (const auto* inner = node.as_table(); inner && !(config && inner->is_inline())) {
      flatten(*inner, key + ".", file, out);
      continue;
    }
    std::string where = file.empty() ? "--set" : fmt::format("{}, line {}", file, node.source().begin.line);
    out.push_back({std::move(key), &node, std::move(where)});
  }
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first, last - first + 1);
}

// One --set: the value is TOML, and what is not TOML is a string.
struct Set {
  std::string key;
  toml::table table;  // {value: ...}, which owns the value
  bool null = false;  // the bare word: a config.json may need it, and TOML has none
};

Set parse_set(const std::string& set) {
  const auto equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail(Exit::usage, "--set {}: it takes KEY=VALUE, such as --set training.max_steps=100", set);
  }
  std::string key(trimmed(std::string_view(set).substr(0, equals)));
  const std::string_view text = trimmed(std::string_view(set).substr(equals + 1));
  try {
    refuse_deep_keys(text, "the value");
    toml::table table = toml::parse("value = " + std::string(text) + "\n");
    if (table.size() == 1) return {std::move(key), std::move(table)};  // more: a line break in the text
  } catch (const toml::parse_error&) {
  } catch (const TomlAssertion&) {
  }
  toml::table table;
  table.insert("value", std::string(text));
  return {std::move(key), std::move(table), text == "null"};
}

class Loader {
 public:
  void apply(const Assignment& assignment, const fs::path& folder) {
    const std::string& name = assignment.key;
    if (name.starts_with(kConfigPrefix) && name.size() > kConfigPrefix.size()) {
      const std::string key = name.substr(kConfigPrefix.size());
      std::erase_if(recipe_.model.config, [&](const auto& old) {  // an earlier value inside this one is replaced
        return old.first.starts_with(key + ".");
      });
      recipe_.model.config[key] = assignment.null ? "null" : json_of(*assignment.node, name);
      return;
    }
    const auto keys = recipe_keys();
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const auto& known) { return known.name == name; });
    if (key == keys.end()) unknown(assignment);
    const auto value = value_of(*assignment.node);
    if (!value || !key->set(recipe_, *value, folder)) {
      fail(Exit::usage, "{} = {} ({}): allowed is {}{}", name, shown(*assignment.node), assignment.where, key->allowed,
           as_integer(*assignment.node, *key));
    }
    given_.insert_or_assign(name, *value);
  }

  Recipe finish() {
    check_contradictions();
    for (const RecipeKey& key : recipe_keys()) {
      const auto value = given_.find(key.name);
      if (value != given_.end() && key.not_built && key.not_built(value->second)) {
        fail(Exit::usage, "{} = {} is not built yet", key.name, value->second.shown);
      }
    }
    return std::move(recipe_);
  }

 private:
  // "; write 5", where the value is a float and the integer that it equals is allowed; else nothing.
  static std::string as_integer(const toml::node& node, const RecipeKey& key) {
    const auto* number = node.as_floating_point();
    constexpr double kExact = 0x1p53;
    if (!number || std::trunc(number->get()) != number->get() || std::abs(number->get()) > kExact) return "";
    const auto integer = static_cast<std::int64_t>(number->get());
    Recipe scratch;
    if (!key.set(scratch, {.value = integer, .shown = ""}, {})) return "";
    return fmt::format("; write {}", integer);
  }

  [[noreturn]] static void unknown(const Assignment& assignment) {
    const auto keys = recipe_keys();
    const bool section = std::any_of(keys.begin(), keys.end(), [&](const auto& known) {
      return known.name.starts_with(assignment.key + ".") || std::string_view("model.config.") == assignment.key + ".";
    });
    if (section) {
      fail(Exit::usage, "{} ({}) is a section of keys and takes no value", assignment.key, assignment.where);
    }
    fail(Exit::usage, "unknown key {} ({}): the nearest known key is {} (strata keys lists all)", assignment.key,
         assignment.where, nearest_key(assignment.key).name);
  }

  bool given(const char* key) const { return given_.contains(key); }
  void not_both(const char* first, const char* second, const char* why) const {
    if (!given(first) || !given(second)) return;
    fail(Exit::usage, "{} = {} and {} = {} contradict each other: {}", first, given_.at(first).shown, second,
         given_.at(second).shown, why);
  }

  void check_contradictions() {
    not_both("model.path", "model.preset", "give one of them");
    not_both("training.gradient_accumulation_steps", "training.global_batch_size", "give one of them");
    if (!recipe_.model.path && !recipe_.model.preset) {
      fail(Exit::usage, "the recipe names no model: give model.path or model.preset");
    }
    if (recipe_.report.dir) name_reports(recipe_.report);
    if (!recipe_.report.trace_steps.empty()) check_traced_steps();
    for (const char* key : {"checkpoint.every", "checkpoint.stop_after"})
      if (given(key) && number_of(given_.at(key)) != 0.0 && !recipe_.checkpoint.dir)
        fail(Exit::usage, "{} = {} needs checkpoint.dir: where checkpoints are written", key, given_.at(key).shown);
    check_tiers();
    check_automatic_batch();
    if (!given("model.init")) recipe_.model.init = recipe_.model.path ? Init::pretrained : Init::random;
    if (recipe_.model.init == Init::pretrained) {
      not_both("model.init", "model.preset", "a preset has no weights to start from");
    }
    Recipe::Optimizer& optimizer = recipe_.optimizer;
    if (optimizer.name == OptimizerName::adamw8bit && optimizer.moment_format() != device::MomentFormat::block8)
      not_both("optimizer.name", "optimizer.moments", "adamw8bit is adamw with 8-bit moments");
    if (optimizer.name == OptimizerName::lion && !given("optimizer.betas")) optimizer.betas = {0.9, 0.99};
    const device::Algorithm algorithm = optimizer.algorithm();
    note("optimizer.momentum", algorithm == device::Algorithm::sgd);
    note("optimizer.betas", algorithm != device::Algorithm::sgd);
    note("optimizer.eps", algorithm == device::Algorithm::adamw);
    const std::int64_t warmup = recipe_.scheduler.warmup_steps, steps = recipe_.training.max_steps.value_or(warmup);
    if (warmup > steps)
      recipe_.notes.push_back(fmt::format(
          "optimizer.learning_rate is never reached: scheduler.warmup_steps = {} and training.max_steps = {}", warmup,
          steps));
  }

  static void name_reports(Recipe::Report& report) {
    const auto name = [&](std::optional<fs::path>& path, const char* usual) {
      if (!path) path = *report.dir / usual;
    };
    name(report.jsonl, "report.jsonl");
    name(report.csv, "report.csv");
    name(report.tensorboard, "tensorboard");
    name(report.summary, "summary.json");
    name(report.trace, "trace.json");
  }

  void check_traced_steps() {
    const Recipe::Report& report = recipe_.report;
    const std::string steps = "report.trace_steps = " + steps_text(report.trace_steps);
    if (!report.trace) fail(Exit::usage, "{} needs report.trace: where the timeline is written", steps);
    const std::int64_t last = recipe_.training.max_steps.value_or(report.trace_steps.back().last);
    if (report.trace_steps.back().last > last)
      recipe_.notes.push_back(fmt::format("{} names steps that are not taken: training.max_steps is {}", steps, last));
  }

  // Not an error: a recipe may hold the keys of several optimizers, of which --set picks one.
  void note(const char* key, bool used) {
    if (given(key) && !used)
      recipe_.notes.push_back(fmt::format("{} = {} has no effect: optimizer.name is {}", key, given_.at(key).shown,
                                          given("optimizer.name") ? given_.at("optimizer.name").shown : "adamw"));
  }

  void check_tiers() const {
    const Recipe::Zero& zero = recipe_.zero;
    for (const auto& [key, tier] : {std::pair{"zero.parameters", zero.parameters},
                                    {"zero.gradients", zero.gradients},
                                    {"zero.optimizer", zero.optimizer},
                                    {"zero.activations", zero.activations}})
      if (tier == Tier::nvme && recipe_.memory.nvme.empty())
        fail(Exit::usage, "{} = nvme needs memory.nvme: a folder on each drive that may be used", key);
    if (zero.activations != Tier::device && recipe_.training.recompute.kind == Recompute::Kind::none)
      fail(Exit::usage,
           "zero.activations = {} moves the inputs of recomputed blocks, and none are recomputed: set "
           "training.recompute to block, sqrt or a list",
           given_.at("zero.activations").shown);
  }

  void check_automatic_batch() const {
    if (recipe_.training.micro_batch_size != kAutomaticBatch) return;
    if (!recipe_.memory.device)
      fail(Exit::usage,
           "training.micro_batch_size = auto needs memory.device: what a rank may use, so that the number does not "
           "depend on what is free today");
    if (recipe_.zero.activations == Tier::host && !recipe_.memory.host)
      fail(Exit::usage,
           "training.micro_batch_size = auto with zero.activations = host needs memory.host, too: the activations of a "
           "micro-batch have to fit there");
  }

  Recipe recipe_;
  std::map<std::string, RecipeValue> given_;
};

// A checkpoint keeps the recipe as JSON, which has no other bytes than UTF-8's: its manifest could not be read again.
void require_utf8(const Recipe& recipe) {
  std::istringstream lines(to_text(recipe));
  for (std::string line; std::getline(lines, line);) {
    if (simdjson::validate_utf8(line)) continue;
    std::string escaped;
    for (const char c : line)
      escaped += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c)
                                                      : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    fail(Exit::usage,
         "{}: these bytes are not UTF-8, so a checkpoint could not record them: rename the file or folder, or name a "
         "link to it",
         escaped);
  }
}

}  // namespace

Recipe load_recipe(const std::optional<fs::path>& path, std::span<const std::string> sets) {
  Loader loader;
  if (path) {
    const toml::table table = read_toml(*path, "recipe");
    std::vector<Assignment> assignments;
    flatten(table, "", path->string(), assignments);
    for (const Assignment& assignment : assignments) loader.apply(assignment, path->parent_path());
  }
  for (const std::string& set : sets) {
    auto [key, table, null] = parse_set(set);
    const bool config = key.starts_with(kConfigPrefix);
    std::vector<Assignment> assignments;
    const toml::node* node = table.get("value");
    if (const auto* inner = node->as_table(); inner && !config) {  // --set optimizer='{eps=1e-6}'
      flatten(*inner, key + ".", "", assignments);
    } else {
      assignments.push_back({std::move(key), node, "--set", null});
    }
    for (const Assignment& assignment : assignments) loader.apply(assignment, {});
  }
  Recipe recipe = loader.finish();
  require_utf8(recipe);
  return recipe;
}

device::Algorithm Recipe::Optimizer::algorithm() const {
  return name == OptimizerName::lion  ? device::Algorithm::lion
         : name == OptimizerName::sgd ? device::Algorithm::sgd
                                      : device::Algorithm::adamw;
}

device::MomentFormat Recipe::Optimizer::moment_format() const {
  using device::MomentFormat;
  return moments.value_or(name == OptimizerName::adamw8bit ? MomentFormat::block8 : MomentFormat::fp32);
}

int Recipe::accumulation_steps(int world_size) const {
  if (!training.global_batch_size) return static_cast<int>(training.gradient_accumulation_steps.value_or(1));
  STRATA_CHECK_LT(kAutomaticBatch, training.micro_batch_size);
  const std::int64_t per_round = world_size * training.micro_batch_size, global = *training.global_batch_size;
  if (global % per_round != 0 || global / per_round > (1 << 24)) {
    fail(Exit::usage,
         "training.global_batch_size = {} does not divide over {} ranks of training.micro_batch_size = {}: "
         "give a multiple of {}",
         global, world_size, training.micro_batch_size, per_round);
  }
  return static_cast<int>(global / per_round);
}

offload::IoOptions Recipe::io_options() const {
  offload::IoOptions options;
  options.folders = memory.nvme;
  options.verify = memory.verify;
  options.engine = memory.io_engine;
  options.direct = memory.io_direct;
  options.registered = memory.io_registered;
  return options;
}

void require_trainable(const Recipe& recipe) {
  if (!recipe.training.max_steps) fail(Exit::usage, "training.max_steps is missing: how many steps to train");
  if (*recipe.training.max_steps > 0 && recipe.data.train.empty()) {
    fail(Exit::usage, "data.train is missing: the token files to train on (strata tokenize makes them)");
  }
  const Recipe::Evaluation& evaluation = recipe.evaluation;
  if (evaluation.asked() && recipe.data.validation.empty())
    fail(Exit::usage,
         "evaluation.{} asks for evaluations while training, and data.validation is missing: name the token files to "
         "evaluate on",
         evaluation.every > 0 ? "every" : "at_start");
  const auto needs_every = [&](bool asked, const char* key, const char* why) {
    if (asked && evaluation.every == 0)
      fail(Exit::usage, "{} {}, and evaluation.every is 0: set evaluation.every to the steps between evaluations", key,
           why);
  };
  needs_every(recipe.checkpoint.keep_best, "checkpoint.keep_best", "keeps what evaluations find best");
  needs_every(evaluation.patience > 0, "evaluation.patience", "counts evaluations");
  needs_every(evaluation.prompts.has_value() && !evaluation.at_start, "evaluation.prompts",
              "are continued at evaluations");
  if (recipe.checkpoint.keep_best && !recipe.checkpoint.dir)
    fail(Exit::usage, "checkpoint.keep_best needs checkpoint.dir: the folder for checkpoints");
}

std::string steps_text(std::span<const StepRange> steps) {
  std::string out;
  for (const auto& [first, last] : steps)
    out +=
        (out.empty() ? "" : ", ") + (first == last ? fmt::format("{}", first) : fmt::format("\"{}-{}\"", first, last));
  return steps.size() == 1 ? out : "[" + out + "]";
}

std::string weights_text(std::span<const DataSource> sources) {
  std::string out;
  for (const DataSource& source : sources) out += fmt::format("{}{}", out.empty() ? "" : ", ", source.weight);
  return "[" + out + "]";
}

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
