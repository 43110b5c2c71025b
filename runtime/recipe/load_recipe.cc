#include "runtime/recipe/load_recipe.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/number.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/names/names_elsewhere.h"
#include "runtime/recipe/recipe.h"
#include "runtime/recipe/toml_file.h"
#include "runtime/recipe/user_path.h"
#include "runtime/recipe/value.h"
#include "runtime/recipe/values_elsewhere.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// True if a number, a size or an item of a list is above `most`. A number too large for TOML arrives as a string.
bool is_above(const RecipeValue& value, double most) {
  if (const auto* list = std::get_if<std::vector<RecipeValue>>(&value.value))
    return std::any_of(list->begin(), list->end(), [&](const RecipeValue& item) { return is_above(item, most); });
  if (const auto number = number_of(value)) return *number >= most;
  const auto* text = std::get_if<std::string>(&value.value);
  if (!text) return false;
  if (const auto bytes = bytes_of(*text)) return *bytes >= most;
  const auto number = parse_number<double>(*text);
  return number && *number >= most;
}

// The hint "; the maximum is ..." for a refused value that is above it.
std::string at_most(const RecipeValue& value, const RecipeKey& key) {
  return key.most && is_above(value, key.most->value) ? fmt::format("; the maximum is {}", key.most->text) : "";
}

// A name that no key has.
struct Unknown {
  std::string_view begin;  // the beginning of the sentence if it stands alone
  std::string text;
};

bool is_config(const std::string& name) {
  return name.starts_with(kConfigPrefix) && name.size() > kConfigPrefix.size();
}

class Loader {
 public:
  // A recipe of another program has many unknown keys: they are listed together, in the order of the lines.
  static void require_known(std::vector<Assignment> file, std::span<const Set> sets) {
    constexpr std::size_t kMost = 10;
    std::ranges::stable_sort(file, {}, [](const Assignment& a) {
      const toml::source_position at = a.node->source().begin;
      return std::pair(at.line, at.column);
    });
    for (const Set& set : sets) file.insert(file.end(), set.assignments.begin(), set.assignments.end());
    std::erase_if(file, [](const Assignment& a) { return is_config(a.key) || find_key(a.key) != nullptr; });
    if (file.empty()) return;
    if (file.size() == 1) {
      const auto [begin, text] = unknown(file[0]);
      fail(Exit::usage, "{}{}{}", begin, text, begin.empty() ? "" : " (strata keys lists all)");
    }
    std::string lines;
    for (const Assignment& assignment : std::span(file).first(std::min(file.size(), kMost))) {
      std::string line = unknown(assignment).text;
      std::erase(line, '\n');  // a key in quotes may contain one
      lines += (lines.empty() ? "  " : "\n  ") + line;
    }
    if (file.size() > kMost) lines += fmt::format("\n  and {} more", file.size() - kMost);
    fail(Exit::usage, "the recipe has {}{}{}", file.size(), kBeforeUnknownKeys, lines);
  }

  void apply_sets(std::span<const Set> sets) {
    for (const Set& set : sets)
      for (const Assignment& assignment : set.assignments) apply(assignment, {});
  }

  void apply(const Assignment& assignment, const fs::path& folder) {
    const std::string& name = assignment.key;
    if (is_config(name)) {
      const std::string key = name.substr(kConfigPrefix.size());
      std::erase_if(recipe_.model.config, [&](const auto& old) {  // this value replaces earlier values inside it
        return old.first.starts_with(key + ".");
      });
      recipe_.model.config[key] = !assignment.json.empty() ? assignment.json : json_of(*assignment.node, name);
      return;
    }
    const RecipeKey* const key = find_key(name);
    if (!key) require_known({assignment}, {});
    const auto value = value_of(*assignment.node);
    const std::optional<fs::path> earlier = recipe_.adapter.path;
    if (!value || !key->set(recipe_, *value, folder)) {
      if (const std::string mistake = value && name == "data.train" ? mistake_in_sources(*value) : ""; !mistake.empty())
        fail(Exit::usage, "{} ({}): {}", name, assignment.where, mistake);
      fail(Exit::usage, "{} = {} ({}): expected {}{}", name, shown(*assignment.node), assignment.where, key->allowed,
           value ? at_most(*value, *key) + meant_by(*value, *key) : "");
    }
    if (name == "adapter.path" && earlier && recipe_.adapter.path && *earlier != *recipe_.adapter.path)
      replaced_adapter_ = earlier;
    given_.insert_or_assign(name, *value);
  }

  // The values without any check between keys.
  Recipe unchecked() && { return std::move(recipe_); }

  LoadedRecipe finish() {
    check_contradictions();
    return {std::move(recipe_), std::move(notes_), std::move(replaced_adapter_)};
  }

 private:
  // The reason why no key has this name.
  static Unknown unknown(const Assignment& assignment) {
    const std::string named = fmt::format("{} ({})", assignment.key, assignment.where);
    if (const std::size_t dot = assignment.key.find('.', assignment.key.find('.') + 1);
        dot != std::string::npos && takes_table(assignment.key.substr(0, dot)))
      return {"", fmt::format("{}: {} is a table, whose names may have dots: write --set {}='{{ {} = {} }}'", named,
                              assignment.key.substr(0, dot), assignment.key.substr(0, dot),
                              json_string(unquoted_key(assignment.key.substr(dot + 1))), shown(*assignment.node))};
    const auto keys = recipe_keys();
    const bool section = std::any_of(keys.begin(), keys.end(), [&](const auto& known) {
      return known.name.starts_with(assignment.key + ".") || std::string_view("model.config.") == assignment.key + ".";
    });
    const NameElsewhere* other = find_elsewhere(assignment.key);
    if (section)
      return {"", fmt::format("{} is a section of keys and takes no value{}", named,
                              other ? "; for other tools' key of that name, " + text_of(*other) : "")};
    const RecipeKey* const same = key_in_any_section(assignment.key.substr(assignment.key.rfind('.') + 1));
    // A key with the same name as a key of Strata says more than another program's section.
    if (other && !(same && is_by_section(*other, assignment.key)))
      return {"unknown key ", fmt::format("{}: {}", named, text_of(*other))};
    const RecipeKey* similar = same ? same : similar_key(assignment.key);
    return {"unknown key ", fmt::format("{}: {}", named,
                                        similar ? "did you mean " + similar->name + "?" : "no key has a similar name")};
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
    if (recipe_.training.reduce == Reduce::fast && recipe_.training.reduce_group > 1)
      not_both("training.reduce", "training.reduce_group", "groups require \"ordered\"");
    if (!recipe_.model.path && !recipe_.model.preset) {
      fail(Exit::usage, "the recipe names no model: give model.path or model.preset");
    }
    note_keys_without_effect();
    if (recipe_.report.dir) name_reports(recipe_.report);
    if (!recipe_.report.trace_steps.empty()) check_traced_steps();
    for (const char* key : {"checkpoint.every", "checkpoint.stop_after"})
      if (given(key) && number_of(given_.at(key)) != 0.0 && !recipe_.checkpoint.dir)
        fail(Exit::usage, "{} = {} needs checkpoint.dir: name the folder for checkpoints", key, given_.at(key).shown);
    check_tiers();
    check_drives();
    check_automatic_batch();
    check_adapter();
    const Recipe defaults = defaults_for(recipe_);
    if (!given("model.init")) recipe_.model.init = defaults.model.init;
    if (recipe_.model.init == Init::pretrained) {
      not_both("model.init", "model.preset", "a preset has no weights to start from");
    }
    Recipe::Optimizer& optimizer = recipe_.optimizer;
    if (optimizer.name == OptimizerName::adamw8bit && optimizer.moment_format() != device::StorageFormat::block8)
      not_both("optimizer.name", "optimizer.moments", "adamw8bit is adamw with 8-bit moments");
    if (!given("optimizer.betas")) optimizer.betas = defaults.optimizer.betas;
    const device::Algorithm algorithm = optimizer.algorithm();
    const std::string is =
        fmt::format("optimizer.name is {}", given("optimizer.name") ? given_.at("optimizer.name").shown : "adamw");
    note("optimizer.momentum", algorithm == device::Algorithm::sgd, is);
    note("optimizer.betas", algorithm != device::Algorithm::sgd, is);
    note("optimizer.eps", algorithm == device::Algorithm::adamw, is);
    const std::int64_t warmup = recipe_.scheduler.warmup_steps, steps = recipe_.training.max_steps.value_or(warmup);
    if (warmup > steps)
      notes_.push_back(fmt::format(
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
    if (!report.trace) fail(Exit::usage, "{} needs report.trace: name the file for the timeline", steps);
    const std::int64_t last = recipe_.training.max_steps.value_or(report.trace_steps.back().last);
    if (report.trace_steps.back().last > last)
      notes_.push_back(fmt::format("{} names steps after the last one: training.max_steps is {}", steps, last));
  }

  // Not an error: a recipe may contain keys of several optimizers, and --set chooses among them.
  void note(const char* key, bool used, std::string_view why) {
    if (given(key) && !used) notes_.push_back(fmt::format("{} = {} has no effect: {}", key, given_.at(key).shown, why));
  }

  void note_keys_without_effect() {
    const Recipe& r = recipe_;
    note("model.double_quant", r.model.frozen_format != FrozenFormat::compute, "model.frozen_format is \"compute\"");
    note("scheduler.min_lr_ratio", r.scheduler.name != Decay::constant, "scheduler.name is \"constant\"");
    const bool fp16 = r.training.precision == device::DType::fp16;
    const std::string precision = fmt::format("training.precision is \"{}\"", device::name_of(r.training.precision));
    note("fp16.initial_scale", fp16, precision);
    note("fp16.growth_interval", fp16, precision);
    const Recipe::Zero& zero = r.zero;
    const std::array tiers = {zero.parameters, zero.gradients, zero.optimizer, zero.activations};
    const bool drives = std::ranges::find(tiers, Tier::nvme) != tiers.end();
    for (const char* key : {"memory.verify", "memory.io_engine", "memory.io_direct", "memory.io_registered"})
      note(key, drives, "no zero.* key is \"nvme\"");
    note("data.long", r.data.packing != Packing::stream, "data.packing is \"stream\"");
    note("checkpoint.keep", r.checkpoint.dir.has_value(), "without checkpoint.dir, no checkpoint is written");
    note("control.metrics_public", r.control.metrics != "off", "control.metrics is \"off\"");
    if (const std::int64_t stop = r.checkpoint.stop_after; r.training.max_steps && stop > *r.training.max_steps)
      note("checkpoint.stop_after", *r.training.max_steps == 0,
           fmt::format("training.max_steps is {}", *r.training.max_steps));
  }

  void check_adapter() {
    Recipe::AdapterKeys& adapter = recipe_.adapter;
    if (adapter.path && !given("adapter.kind")) adapter.kind = AdapterKind::lora;
    for (const auto& [key, value] : given_)
      if (key.starts_with("adapter.") && key != "adapter.path") adapter.given.push_back(key);
    if (adapter.kind == AdapterKind::none && adapter.path)
      fail(Exit::usage, "adapter.kind = \"none\" and adapter.path = {} contradict each other: leave one of them out",
           given_.at("adapter.path").shown);
    if (adapter.kind == AdapterKind::none) {
      for (const auto& [key, value] : given_) {
        if (!key.starts_with("adapter.") || key == "adapter.kind") continue;
        if (!given("adapter.kind")) fail(Exit::usage, "{} = {} needs adapter.kind = \"lora\"", key, value.shown);
        notes_.push_back(fmt::format("{} = {} has no effect: adapter.kind is \"none\"", key, value.shown));
      }
      adapter = {};  // a recipe that is written out then reads without these keys
      if (given("adapter.kind")) adapter.given = {"adapter.kind"};
      return;
    }
    if (!recipe_.training.freeze.empty())
      fail(
          Exit::usage,
          "training.freeze = {} and adapter.kind = \"lora\" contradict each other: with an adapter all of the model is "
          "frozen except adapter.modules_to_save; leave training.freeze out",
          given_.at("training.freeze").shown);
  }

  void check_tiers() const {
    const Recipe::Zero& zero = recipe_.zero;
    for (const auto& [key, tier] : {std::pair{"zero.parameters", zero.parameters},
                                    {"zero.gradients", zero.gradients},
                                    {"zero.optimizer", zero.optimizer},
                                    {"zero.activations", zero.activations}})
      if (tier == Tier::nvme && recipe_.memory.nvme.empty())
        fail(Exit::usage, "{} = nvme needs memory.nvme: name a folder on each drive to use", key);
    if (zero.activations != Tier::device && recipe_.training.recompute.kind == Recompute::Kind::none)
      fail(Exit::usage,
           "zero.activations = {} moves the inputs of recomputed blocks, but no block is recomputed: set "
           "training.recompute to block, sqrt or a list",
           given_.at("zero.activations").shown);
  }

  // Links are followed, because drives are counted by their folders. Two folders may be on one drive.
  void check_drives() const {
    const std::vector<fs::path>& folders = recipe_.memory.nvme;
    for (std::size_t i = 0; i < folders.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (leads_to(folders[i], folders[j]))
          fail(Exit::usage, "memory.nvme = {} names the folder {} twice: give each drive one folder",
               given_.at("memory.nvme").shown, folders[j].string());
  }

  void check_automatic_batch() const {
    if (recipe_.training.micro_batch_size != kAutomaticBatch) return;
    if (!recipe_.memory.device)
      fail(Exit::usage,
           "training.micro_batch_size = auto needs memory.device, the memory that a rank may use: set it, "
           "because otherwise the number would depend on the memory that is free now");
    if (recipe_.zero.activations == Tier::host && !recipe_.memory.host)
      fail(Exit::usage,
           "training.micro_batch_size = auto with zero.activations = host needs memory.host, too: set it, because the "
           "activations of a micro-batch have to fit there");
  }

  Recipe recipe_;
  std::vector<std::string> notes_;
  std::optional<fs::path> replaced_adapter_;
  std::map<std::string, RecipeValue> given_;
};

// A checkpoint stores the recipe as JSON, which must be UTF-8: a manifest with other bytes could not be read again.
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

std::vector<Set> parsed(std::span<const std::string> sets) {
  std::vector<Set> out;
  for (const std::string& set : sets) out.push_back(parse_set(set));
  return out;
}

}  // namespace

LoadedRecipe load_with_notes(const std::optional<fs::path>& path, std::span<const std::string> sets) {
  Loader loader;
  toml::table table;
  std::vector<Assignment> file;
  if (path) {
    table = read_toml(*path, "recipe");
    file = assignments_of(table, path->string());
  }
  const std::vector<Set> given = parsed(sets);
  Loader::require_known(file, given);
  for (const Assignment& assignment : file) loader.apply(assignment, path->parent_path());
  loader.apply_sets(given);
  LoadedRecipe loaded = loader.finish();
  require_utf8(loaded.recipe);
  return loaded;
}

Recipe load_recipe(const std::optional<fs::path>& path, std::span<const std::string> sets) {
  return load_with_notes(path, sets).recipe;
}

Recipe stored_keys(const std::map<std::string, std::string>& stored, std::span<const std::string_view> names) {
  std::vector<std::string> sets;
  for (const std::string_view name : names)
    if (const auto found = stored.find(std::string(name)); found != stored.end())
      sets.push_back(found->first + "=" + found->second);
  Loader loader;
  loader.apply_sets(parsed(sets));
  return std::move(loader).unchecked();
}

}  // namespace strata::runtime
