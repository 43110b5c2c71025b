#include "runtime/run/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "base/words.h"
#include "comm/same_files.h"
#include "models/classes.h"
#include "models/files/python.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/kept_best.h"
#include "runtime/job/search/algorithms.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/schedule.h"
#include "runtime/weights/adapter/same_adapter.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// A change of any of these keys would make a different run. Other keys may differ (rates, steps, placement, ranks).
constexpr std::string_view kSameKeys =
    "model.frozen_format model.double_quant data.long data.order data.packing data.seq_len training.seed "
    "training.freeze training.reduce_group training.objective training.mlm_probability";

bool is_dropout(std::string_view key) {
  return key.ends_with("_pdrop") || key.ends_with("_dropout");
}

// Keys of config.json that do not change the meaning of trained weights.
bool is_free(std::string_view key) {
  constexpr std::array<std::string_view, 8> kFree = {"_name_or_path",     "architectures",   "dtype",
                                                     "torch_dtype",       "use_cache",       "transformers_version",
                                                     "initializer_range", models::kTrainedOn};
  return std::find(kFree.begin(), kFree.end(), key) != kFree.end() || is_dropout(key) || key.ends_with("_token_id");
}

// A value as JSON, in which equal numbers have the same text: 1.0 is written as 1.
std::string comparable(simdjson::dom::element value) {
  JsonArray items;
  JsonObject members;
  constexpr double kExact = 0x1p53;
  switch (value.type()) {
    case simdjson::dom::element_type::DOUBLE: {
      const double number = value.get_double().value();
      if (number != std::trunc(number) || std::abs(number) >= kExact) break;
      return std::to_string(static_cast<std::int64_t>(number));
    }
    case simdjson::dom::element_type::ARRAY:
      for (const auto item : simdjson::dom::array(value.get_array())) items.add(JsonText{comparable(item)});
      return items.text();
    case simdjson::dom::element_type::OBJECT:
      for (const auto field : simdjson::dom::object(value.get_object()))
        members.add(field.key, JsonText{comparable(field.value)});
      return members.text();
    default:
      break;
  }
  return simdjson::minify(value);
}

std::map<std::string, std::string> keys_of(const std::string& config) {
  std::map<std::string, std::string> out;
  simdjson::dom::parser parser;
  const simdjson::dom::object object = parser.parse(models::without_python_numbers(config));
  for (const auto field : object) out.emplace(std::string(field.key), comparable(field.value));
  // Older presets wrote out sizes that a configuration now leaves to its class.
  const auto size = [&](const char* key) {
    const auto found = out.find(key);
    std::int64_t value = 0;
    if (found != out.end())
      (void)std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return value;
  };
  if (size("n_inner") == 0 && size("n_embd") > 0) out["n_inner"] = std::to_string(4 * size("n_embd"));
  if (size("head_dim") == 0 && size("num_attention_heads") > 0 && out["model_type"] != "\"qwen3\"")
    out["head_dim"] = std::to_string(size("hidden_size") / size("num_attention_heads"));
  return out;
}

void require_same_config(const Manifest& manifest, const fs::path& path, const Job& job) {
  const auto stored = keys_of(manifest.config), wanted = keys_of(job.config().to_json());
  const auto value = [](const std::map<std::string, std::string>& keys, const std::string& key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string("nothing") : found->second;
  };
  const auto bare = [](std::string json) {
    std::erase(json, '"');
    return json;
  };
  if (value(stored, "model_type") != value(wanted, "model_type"))
    fail(Exit::usage,
         "{} is a checkpoint of a {} model, but the recipe's is a {} model: give another checkpoint.dir, or the model "
         "that was trained there",
         path.string(), bare(value(stored, "model_type")), job.model->family);
  for (const auto* side : {&stored, &wanted})
    for (const auto& [key, ignored] : *side)
      if (!is_free(key) && value(stored, key) != value(wanted, key))
        fail(Exit::usage, "{} is another model's checkpoint: {} of its config is {}, but the recipe's model has {}",
             path.string(), key, value(stored, key), value(wanted, key));
}

[[noreturn]] void other_run(const fs::path& path, std::string_view key, std::string_view was, std::string_view now) {
  const bool packing = key == "data.packing";  // this key may be unset
  fail(Exit::usage,
       "{} was written with {} = {}, but {} {}{}: keep the value, give another checkpoint.dir, or start over from "
       "exported weights",
       path.string(), key, was, packing ? "this run has" : "the recipe says", now,
       packing ? " (auto is documents if a token file has a mask, else stream)" : "");
}

// An unresolved "auto" comes from a run with files without masks.
bool is_stream(std::string_view packing) {
  return packing == "\"stream\"" || packing == "\"auto\"";
}

// Virtual shards are part of the numerics.
void require_same_shards(const Manifest& manifest, const fs::path& path, const Job& job) {
  const auto was = shards_of(manifest), now = static_cast<std::int64_t>(job.shards());
  if (was != now) other_run(path, "parallel.tensor_shards", std::to_string(was), std::to_string(now));
}

// The files of data.train may change, but not how they are mixed.
void require_same_weights(const Manifest& manifest, const fs::path& path, const Recipe::Data& data) {
  constexpr std::string_view kOne = "none (one source)";
  const auto stored = manifest.recipe.find("data.train.weights");
  const std::string was(stored == manifest.recipe.end() ? kOne : stored->second);
  const std::string now = data.train.size() > 1 ? weights_text(data.train) : std::string(kOne);
  if (was != now) other_run(path, "the weights of data.train", was, now);
}

// The update rule and the format of the moments, whichever of the keys name them: adamw8bit is adamw with 8-bit
// moments.
void require_same_optimizer(const Manifest& manifest, const fs::path& path, const Recipe& now) {
  constexpr std::string_view kName = "optimizer.name", kMoments = "optimizer.moments";
  std::vector<std::string_view> stored;
  for (const std::string_view key : {kName, kMoments})
    if (const auto found = manifest.recipe.find(std::string(key)); found != manifest.recipe.end())
      if (found->second != "none") stored.push_back(key);
  if (stored.empty()) return;
  const Recipe was = stored_keys(manifest.recipe, stored);
  const auto text = [](std::string_view key, Recipe recipe) {
    recipe.optimizer.moments = recipe.optimizer.moment_format();
    return find_key(key)->text(recipe);
  };
  const bool same_rule = was.optimizer.algorithm() == now.optimizer.algorithm();
  for (const std::string_view key : {kName, kMoments})
    if (key == kName ? !same_rule : was.optimizer.moment_format() != now.optimizer.moment_format())
      other_run(path, key, text(key, was), text(key, now));
}

// True if the run that wrote the checkpoint trained the job's adapter, whatever names its keys gave the layers.
bool same_adapter(const Manifest& manifest, const Job& job) {
  const Recipe::AdapterKeys was = adapter_of(manifest), &now = job.adapter();
  return was.kind == now.kind && now.kind != AdapterKind::none &&
         is_same_adapter(job.config(), job.objective(), was.lora, now.lora);
}

}  // namespace

Progress progress_under(const Manifest& manifest, const fs::path& path, const Job& job,
                        const std::string& validation_hash) {
  require_same_config(manifest, path, job);
  const Recipe recipe = job.complete_recipe();
  for (const RecipeKey& key : recipe_keys()) {
    const bool of_adapter = key.name.starts_with("adapter.");
    if (key.name == "adapter.path") continue;  // the run began there, and the checkpoint has continued from it
    if (!of_adapter && !has_word(kSameKeys, key.name)) continue;
    const auto stored = manifest.recipe.find(key.name);
    const bool packing = key.name == "data.packing";
    const std::string now = key.text(recipe);
    // Before these keys existed, runs trained on streams, and trained all weights.
    const std::string before = packing                             ? "\"stream\""
                               : key.name == "training.freeze"     ? "none"
                               : key.name == "model.frozen_format" ? "\"compute\""
                               : of_adapter                        ? key.text(Recipe{})
                                                                   : now;
    const std::string was = stored != manifest.recipe.end() ? stored->second : before;
    if (was != now && chooses_modules(key.name) && same_adapter(manifest, job)) continue;
    if (was != now && !(packing && is_stream(was) && is_stream(now))) other_run(path, key.name, was, now);
  }
  require_same_optimizer(manifest, path, recipe);
  require_same_shards(manifest, path, job);
  require_same_weights(manifest, path, recipe.data);
  Progress progress = manifest.progress;
  if (!same_measure(manifest, recipe, validation_hash)) progress.best.reset();
  const auto size = static_cast<std::uint64_t>(recipe.training.micro_batch_size);
  const auto stored = manifest.recipe.find("training.micro_batch_size");
  const std::uint64_t was = stored == manifest.recipe.end() ? size : std::stoull(stored->second);
  if (progress.next_micro_batch * was % size != 0)
    fail(Exit::usage,
         "{} was written after {} of {}, which is not a whole number of micro-batches of {}: "
         "set training.micro_batch_size = {}",
         path.string(), counted(progress.next_micro_batch, "micro-batch", "micro-batches"), counted(was, "sequence"),
         size, was);
  progress.next_micro_batch = progress.next_micro_batch * was / size;
  // A run in another precision has no loss scale to continue with.
  if (const auto precision = manifest.recipe.find("training.precision");
      precision == manifest.recipe.end() || precision->second != "\"fp16\"")
    progress.loss_scale = {static_cast<float>(recipe.fp16.initial_scale), 0};
  return progress;
}

std::string schedule_change(const Manifest& manifest, const Recipe& recipe, std::int64_t steps_done) {
  constexpr std::array<std::string_view, 5> kKeys = {"training.max_steps", "optimizer.learning_rate", "scheduler.name",
                                                     "scheduler.warmup_steps", "scheduler.min_lr_ratio"};
  std::string changes;
  for (const RecipeKey& key : recipe_keys()) {
    const auto stored = manifest.recipe.find(key.name);
    if (std::find(kKeys.begin(), kKeys.end(), key.name) == kKeys.end() || stored == manifest.recipe.end()) continue;
    if (const std::string here = key.text(recipe); here != stored->second)
      changes += fmt::format("{}{} was {} and is {}", changes.empty() ? "" : ", ", key.name, stored->second, here);
  }
  const std::int64_t next = steps_done + 1, steps = recipe.training.max_steps.value_or(0);
  if (changes.empty() || next > steps) return {};
  const Recipe before = stored_keys(manifest.recipe, kKeys);
  const auto rate = [](const Recipe& r, std::int64_t step) {
    return learning_rate(r.scheduler, r.optimizer.learning_rate, *r.training.max_steps, step);
  };
  const std::int64_t last = before.training.max_steps.value_or(0);
  if (last < steps_done || (next <= last && rate(before, next) == rate(recipe, next))) return {};
  const double old_rate = rate(before, steps_done), new_rate = rate(recipe, next);
  if (last == steps_done && old_rate == new_rate) return {};  // the run had ended, and continues at its last rate
  const std::string from = fmt::format("{:.3g}", old_rate), to = fmt::format("{:.3g}", new_rate);
  if (from == to) return changes;
  return fmt::format("{}: the learning rate goes from {} to {} in step {}", changes, from, to, next);
}

std::string other_settings(const Manifest& manifest, const Job& job, const std::string& data_hash) {
  // The schedule has its own sentence.
  constexpr std::string_view kKeys =
      "data.train training.precision training.micro_batch_size training.class_weights training.max_grad_norm "
      "training.reduce optimizer.betas optimizer.eps optimizer.momentum optimizer.weight_decay";
  constexpr std::size_t kLongest = 200;  // the length of a value in the message
  std::vector<std::string> changes;
  const auto compare = [&](std::string_view what, const std::string& was, const std::string& now) {
    if (was != now)
      changes.push_back(fmt::format("{} was {} and is {}", what, excerpt(was, kLongest), excerpt(now, kLongest)));
  };
  const Recipe here = with_absolute_paths(job.recipe);
  std::uint64_t size = 1;
  for (const RecipeKey& key : recipe_keys()) {
    const auto stored = manifest.recipe.find(key.name);
    if (stored == manifest.recipe.end()) continue;
    if (key.name == "training.micro_batch_size") size = std::stoull(stored->second);
    if (key.name == "data.train" && !manifest.data_hash.empty()) {
      // Files may move, and other tokens may be in files of the same names.
      if (manifest.data_hash == data_hash) continue;
      if (stored->second == key.text(here) || stored->second == key.text(job.recipe)) {
        changes.push_back(
            fmt::format("the files of data.train = {} have different contents", excerpt(stored->second, kLongest)));
        continue;
      }
    }
    if (has_word(kKeys, key.name)) compare(key.name, stored->second, key.text(job.recipe));
  }
  const auto config_was = keys_of(manifest.config), config_is = keys_of(job.config().to_json());
  for (const auto& [key, value] : config_is)
    if (const auto was = config_was.find(key); is_dropout(key) && was != config_was.end())
      compare("model.config." + key, was->second, value);
  const auto now = static_cast<std::uint64_t>(job.recipe.training.micro_batch_size);
  compare("the number of sequences per step", std::to_string(manifest.micro_batches_per_step * size),
          std::to_string(job.plan.micro_batches() * now));
  if (changes.empty()) return {};
  return fmt::format(
      "{}: the run continues with these changes, so its bits are not those of a run that was never stopped",
      fmt::join(changes, ", "));
}

namespace {

// Rank 0's view, on all ranks.
ResumeChoice agree_on_choice(const Recipe::Checkpoint& recipe, comm::World& world) {
  std::string
      texts;  // the folder, whether it is one checkpoint, then path and damage in turn; each text is followed by a zero
  comm::agree(world, [&] {
    if (world.rank() != 0) return;
    const ResumeChoice choice = checkpoints_to_resume(recipe);
    texts = choice.folder.string() + '\0' + (choice.one ? "one" : "") + '\0';
    for (const FoundCheckpoint& found : choice.found) texts += found.path.string() + '\0' + found.damage + '\0';
  });
  texts = world.exchange(texts)[0];
  std::size_t at = 0;
  const auto next = [&] {
    std::string text = texts.c_str() + at;
    at += text.size() + 1;
    return text;
  };
  ResumeChoice out;
  out.folder = next();
  out.one = !next().empty();
  while (at < texts.size()) {
    FoundCheckpoint& found = out.found.emplace_back();
    found.path = next();
    found.damage = next();
  }
  if (out.one) out.found.front().path = recipe.resume;  // manifests of all ranks are compared when they are read
  return out;
}

}  // namespace

Start start_or_resume(Trainer& trainer, const Job& job, comm::World& world, int threads, const Note& note,
                      const Advance& advance) {
  const auto note_once = [&](const std::string& text) {
    if (world.rank() == 0) note(text);
  };
  ResumeChoice choice = agree_on_choice(job.recipe.checkpoint, world);
  const auto load = [&](FoundCheckpoint& found) {
    const comm::FileFingerprint manifest =
        comm::fingerprint_file(found.path / kManifestName, "the checkpoint to resume from");
    comm::require_same({&manifest, 1}, world);  // it contains the checksums of everything else
    try {
      Progress progress;
      std::string change, settings;
      bool had_best = false;
      std::string base;
      comm::agree(world, [&] {
        const Checkpoint checkpoint(found.path);
        base = checkpoint.manifest().base_hash;
        had_best = checkpoint.manifest().progress.best.has_value();
        progress = progress_under(checkpoint.manifest(), found.path, job, trainer.validation_hash());
        change = schedule_change(checkpoint.manifest(), job.recipe, progress.step);
        settings = other_settings(checkpoint.manifest(), job, trainer.data_hash());
        load_state(checkpoint, job, trainer.executor(), world.rank(), threads, advance);
        use_saved_algorithms(trainer.executor(), checkpoint.manifest().algorithms, found.path.string(), note_once);
      });
      if (!base.empty()) trainer.load_base(base, threads, note, advance);
      trainer.restore(progress);
      for (const std::string& text : {change, settings})
        if (!text.empty()) note_once(text);
      if (had_best && !progress.best)
        note_once(job.evaluation ? "this run evaluates differently from the one that it resumes (data.validation or "
                                   "evaluation.*): the search for the best starts over"
                                 : "this run does not evaluate, although the one that it resumes did (data.validation, "
                                   "evaluation.every): the best step is no longer known");
      return true;
    } catch (const comm::AgreedError& error) {
      if (choice.one || error.code() != Exit::corrupt) throw;
      found.damage = error.what();
      return false;
    }
  };
  Start start;
  for (FoundCheckpoint& found : choice.found) {
    if (found.damage.empty() && load(found)) {
      start.from = found.path;
      return start;
    }
    start.damaged.push_back(found.path);
    note_once(passed_over(found));
  }
  if (!choice.found.empty())
    comm::agree(world, [&] {
      fail_all_damaged(choice.folder, choice.found.size(),
                       "name a complete one in checkpoint.resume, or start over with checkpoint.resume = \"none\"");
    });
  trainer.load_initial_weights(threads, note, advance);
  return start;
}

std::int64_t shards_of(const Manifest& manifest) {
  const auto stored = manifest.recipe.find("parallel.tensor_shards");
  const bool one = stored == manifest.recipe.end() || stored->second.find_first_of("123456789") == std::string::npos;
  return one ? 1 : std::stoll(stored->second);
}

}  // namespace strata::runtime
