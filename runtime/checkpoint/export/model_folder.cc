#include "runtime/checkpoint/export/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "comm/agreement.h"
#include "models/families/families.h"
#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/checkpoint/export/model_place.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/weights/adapter/adapter_weights.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "runtime/weights/adapter/same_adapter.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

struct OpenCheckpoint {
  std::shared_ptr<const Checkpoint> opened;
};

// A checkpoint's weights, which keep it open. OpenCheckpoint is the first base class, because it must outlive the
// second, which reads it.
class SharedCheckpoint final : private OpenCheckpoint, public ForwardedWeights {
 public:
  SharedCheckpoint(std::shared_ptr<const Checkpoint> checkpoint, const models::Model& model, std::uint64_t seed,
                   bool new_head)
      : OpenCheckpoint{std::move(checkpoint)}, ForwardedWeights(checkpoint_weights(*opened, model, seed, new_head)) {}
  // The manifest contains the checksums of all other files.
  std::vector<comm::FileFingerprint> fingerprints() const override {
    return {comm::fingerprint_file(opened->path() / kManifestName, "weights")};
  }
};

// True if the path looks like a name on the Hub: ORGANISATION/MODEL, or an old model's single name.
bool is_hub_name(const fs::path& path) {
  const std::string text = path.string();
  const bool in_folder = path.has_parent_path() && type_at(path.parent_path()) == fs::file_type::directory;
  return path.is_relative() && !in_folder && !text.starts_with('.') && !text.ends_with('/') &&
         std::count(text.begin(), text.end(), '/') <= 1;
}

// Refuses an adapter that is given as a model and whose base model is not found.
[[noreturn]] void no_base(const fs::path& adapter) {
  const std::string base = base_of_adapter(adapter);
  const auto what = [&] {
    if (base.empty()) return std::string(" but names no base_model_name_or_path");
    if (type_at(base) == fs::file_type::directory) return " of " + base;
    std::string of = fmt::format(" of {}, which is not a folder here", base);
    if (!is_hub_name(base)) return of;
    return fmt::format("{}, and nothing is downloaded (hf download {} --local-dir {})", of, shell_word(base),
                       shell_word(base));
  };
  fail(
      Exit::usage,
      "{} holds an adapter (LoRA){}: write the folder of that model to base_model_name_or_path in its {}, or give that "
      "model, and the adapter as adapter.path (eval, generate and predict: --adapter)",
      adapter.string(), what(), kPeftConfigName);
}

[[noreturn]] void no_model(const fs::path& path) {
  refuse_broken_link((path / "").parent_path());
  refuse_broken_link(path / "config.json");
  if (type_at(path) == fs::file_type::not_found) {
    const std::string folder = shell_word(path.string());
    fail(Exit::usage,
         "there is no folder {}, and nothing is downloaded: give the folder of a model or of checkpoints, or get one "
         "from the Hugging Face Hub first: hf download {} --local-dir {}",
         path.string(), is_hub_name(path) ? folder : "ORGANISATION/MODEL", folder);
  }
  if (type_at(path / kPeftConfigName) != fs::file_type::not_found) no_base(path);
  if (path.extension() == ".gguf")
    fail(Exit::usage,
         "{} holds a model in llama.cpp's GGUF format, usually quantised, which Strata does not read: give the Hugging "
         "Face directory that it was converted from",
         path.string());
  constexpr std::string_view kFiles[] = {"config.json", kPeftConfigName};
  if (const auto inside = subfolder_with(kFiles, path))
    fail(Exit::usage, "{} holds no model, but {} holds one: give that", path.string(), inside->string());
  fail(Exit::usage,
       "{} holds no model: give a Hugging Face directory (config.json), a checkpoint ({}), or a folder of "
       "checkpoints",
       path.string(), kManifestName);
}

// The keys of the run that wrote the checkpoint, with their defaults if it had none.
Recipe::Model frozen_format_of(const Manifest& manifest) {
  std::vector<std::string_view> names;
  for (const std::string_view key : {"model.frozen_format", "model.double_quant"})
    if (manifest.recipe.contains(std::string(key))) names.push_back(key);
  return stored_keys(manifest.recipe, names).model;
}

}  // namespace

Recipe::AdapterKeys adapter_of(const Manifest& manifest) {
  std::map<std::string, std::string> stored;
  std::vector<std::string_view> names;
  for (const auto& [key, value] : manifest.recipe)
    if (key.starts_with("adapter.") && value != "none") stored.emplace(key, value);
  for (const auto& [key, value] : stored) names.push_back(key);
  Recipe::AdapterKeys keys = stored_keys(stored, names).adapter;
  keys.path.reset();  // the run began with that adapter, but the checkpoint replaces it
  return keys;
}

namespace {
std::optional<ResolvedAdapter> resolved_adapter(const Manifest& manifest) {
  Recipe::AdapterKeys keys = adapter_of(manifest);
  if (keys.kind == AdapterKind::none) return std::nullopt;
  const Recipe::Model stored = frozen_format_of(manifest);
  return ResolvedAdapter{std::move(keys), ResolvedAdapter::Frozen{stored.frozen_format, stored.double_quant}};
}
}  // namespace

bool ModelFolder::find() {
  if (type_at(path_ / "config.json") != fs::file_type::not_found) return true;
  checkpoint_ = true;
  if (runtime::is_checkpoint(path_)) return true;
  if (type_at(path_) != fs::file_type::directory) no_model(path_);
  return false;
}

ModelFolder::ModelFolder(fs::path path) : path_(std::move(path)) {
  if (find()) return;
  const auto all = list_checkpoints(path_, CheckpointTest::shards);
  if (all.empty()) no_model(path_);
  const auto found = std::find_if(all.begin(), all.end(), [](const auto& one) { return one.damage.empty(); });
  if (found == all.end())
    fail(Exit::corrupt, "{}: {}: {}", path_.string(), all_damaged_text(all.size()), all[0].damage);
  path_ = found->path;
}

ModelFolder ModelFolder::newest_undamaged(fs::path path, int threads, const Note& note, const Advance& advance) {
  ModelFolder out;
  out.path_ = std::move(path);
  if (out.find()) {
    if (out.checkpoint_) out.open_ = std::make_shared<const Checkpoint>(out.path_);
    return out;
  }
  auto newest = runtime::newest_undamaged(out.path_, threads, note, advance);
  if (!newest) no_model(out.path_);
  out.open_ = std::make_shared<const Checkpoint>(std::move(*newest));
  out.path_ = out.open_->path();
  return out;
}

Workload open_workload(Recipe recipe) {
  Resolved resolved;
  resolved.base = base_of_recipe(recipe);
  const std::optional<fs::path> path = resolved.base ? resolved.base : recipe.model.path;
  const std::optional<fs::path> peft = resolved.base ? recipe.model.path : recipe.adapter.path;
  if (peft) require_peft_folder(*peft);
  if (!path && !recipe.model.preset)
    fail(Exit::usage,
         "the recipe names no model: set model.path to a Hugging Face directory or model.preset to one of "
         "the named shapes (strata keys lists them)");
  models::Config description =
      path ? ModelFolder(*path).config()
           : models::Config::parse(models::preset_config(*recipe.model.preset), "preset " + *recipe.model.preset);
  if (resolved.base) description.add_note("model.path = " + note_of_base(*peft, *path));
  const bool pretrained = path && recipe.model.init == Init::pretrained;
  // This comes before an adapter's layers are compared, because only an untied output layer is one of them.
  if (pretrained && !ModelFolder(*path).is_checkpoint())
    untie_if_different(description, *path, recipe.training.objective);
  if (peft) {
    PeftKeys found = read_peft_keys(recipe, *peft, Workload{recipe, description}.config());
    if (pretrained) found.notes.push_back(note_of_other_base(*peft, *path, ModelFolder(*path).path(), description));
    for (std::string& note : found.notes)
      if (!note.empty()) description.add_note(std::move(note));
    resolved.adapter = ResolvedAdapter{std::move(found.keys)};
  } else {
    require_listed_targets(recipe);
  }
  if (pretrained) {
    const ModelFolder folder(*path);
    if (!folder.is_checkpoint()) {
      if (!peft) add_adapter_note(description, folder.path());
    } else if (peft && folder.has_adapter()) {
      fail(Exit::usage,
           "{} is a checkpoint with an adapter of its own, but adapter.path (--adapter) = {} names another: leave "
           "adapter.path out, or give the base model of both",
           path->string(), peft->string());
    } else if (!peft && recipe.adapter.kind == AdapterKind::none) {
      resolved.adapter = resolved_adapter(read_manifest(folder.path()));
    } else if (const auto own = folder.adapter();
               own.kind != AdapterKind::none && own.lora.dora != recipe.adapter.lora.dora) {
      fail(Exit::usage,
           "{}'s adapter has adapter.dora = {}, but the recipe says {}: use the same value, or export the model first",
           path->string(), own.lora.dora, recipe.adapter.lora.dora);
    }
  }
  return {std::move(recipe), std::move(description), {}, {}, std::move(resolved)};
}

ModelFolder agree_on_model(const fs::path& path, int threads, comm::World& world, const Note& note) {
  std::optional<ModelFolder> model;
  std::string chosen;  // name of the chosen checkpoint in the folder; empty if the path itself is the model
  comm::agree(world, [&] {
    if (world.rank() != 0) return;
    model = ModelFolder::newest_undamaged(path, threads, note);
    if (model->path() != path) chosen = model->path().filename().string();
  });
  chosen = world.exchange(chosen)[0];
  comm::agree(world, [&] {
    if (world.rank() != 0) model = ModelFolder::newest_undamaged(chosen.empty() ? path : path / chosen, threads, note);
  });
  return std::move(*model);
}

Manifest ModelFolder::manifest() const {
  return open_ ? open_->manifest() : read_manifest(path_);
}

models::Config ModelFolder::config() const {
  if (checkpoint_) return models::Config::parse(manifest().config, (path_ / kManifestName).string());
  models::Config config = models::Config::read(path_);
  models::name_family(config);
  return config;
}

std::optional<device::StorageFormat> ModelFolder::quantised() const {
  return has_adapter() ? frozen_format_of(manifest()).quantised() : std::nullopt;
}

Recipe::AdapterKeys ModelFolder::adapter() const {
  return checkpoint_ ? adapter_of(manifest()) : Recipe::AdapterKeys{};
}
bool ModelFolder::has_adapter() const {
  return adapter().kind != AdapterKind::none;
}

std::unique_ptr<WeightSource> ModelFolder::weights(const models::Model& model, std::uint64_t seed,
                                                   bool new_head) const {
  if (!checkpoint_) return stored_weights(model, path_, seed, new_head);
  const auto checkpoint = open_ ? open_ : std::make_shared<const Checkpoint>(path_);
  const Manifest& manifest = checkpoint->manifest();
  auto own = std::make_unique<SharedCheckpoint>(checkpoint, model, seed, new_head);
  if (manifest.base_hash.empty()) return own;
  return joined_weights(base_weights(model), std::move(own), model,
                        {manifest.base_hash, place_of(manifest.base_path, manifest, path_).path.string()});
}

std::unique_ptr<WeightSource> ModelFolder::base_weights(const models::Model& model) const {
  const Manifest manifest = this->manifest();
  constexpr std::string_view kKeys[] = {"training.seed", "model.init", "model.new_head"};
  const Recipe began = stored_keys(manifest.recipe, kKeys);
  if (began.model.init == Init::random) return random_weights(model, began.training.seed);
  require_base();
  return ModelFolder(place_of(manifest.base_path, manifest, path_).path)
      .weights(model, began.training.seed, began.model.new_head);
}

void ModelFolder::require_base() const {
  if (!checkpoint_) return;
  const Manifest manifest = this->manifest();
  constexpr std::string_view kKeys[] = {"model.init"};
  if (manifest.base_hash.empty() || stored_keys(manifest.recipe, kKeys).model.init == Init::random) return;
  const fs::path base = place_of(manifest.base_path, manifest, path_).path;
  if (type_at(base) == fs::file_type::not_found)
    fail(Exit::usage,
         "{} holds an adapter, but its base model is no longer at {}: put the model back there, or a link to it",
         path_.string(), base.string());
}

device::DType ModelFolder::dtype() const {
  if (checkpoint_) return device::DType::fp32;
  const models::Safetensors file = models::Safetensors::open(path_);
  const auto& tensors = file.tensors();
  const auto size = [](const models::StoredTensor& tensor) { return tensor.type ? tensor.elements() : 0; };
  const auto largest =
      std::max_element(tensors.begin(), tensors.end(), [&](const auto& a, const auto& b) { return size(a) < size(b); });
  return largest == tensors.end() ? device::DType::fp32 : largest->type.value_or(device::DType::fp32);
}

std::optional<fs::path> ModelFolder::began_with() const {
  const Manifest manifest = this->manifest();
  const fs::path model = stored_path(manifest, "model.path");
  return model.empty() ? std::nullopt : std::optional(place_of(model, manifest, path_).path);
}

std::string ModelFolder::base_note() const {
  if (!checkpoint_) return {};
  const Manifest manifest = this->manifest();
  const fs::path model = stored_path(manifest, "model.path");
  const ModelPlace place = place_of(model, manifest, path_);
  if (!place.guessed) return {};
  return fmt::format("{} names its run's initial model as {}, relative to a folder that it does not record: {} is read",
                     path_.string(), model.string(), place.path.string());
}

std::optional<fs::path> ModelFolder::hugging_face() const {
  constexpr int kMaxRuns = 16;  // each started from the previous one; limited, because a run may name its own folder
  ModelFolder folder = *this;
  for (int run = 0; run < kMaxRuns; ++run) {
    if (!folder.checkpoint_) return folder.path_;
    const auto before = folder.began_with();
    if (!before || before->empty()) return std::nullopt;
    try {
      folder = ModelFolder(*before);
    } catch (const Error&) {
      return std::nullopt;  // the earlier folder no longer exists
    }
  }
  return std::nullopt;
}

namespace {
std::vector<std::string> frozen_of(std::vector<std::string> names, const models::Model& model) {
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters())
      if (p.trained()) std::erase(names, p.name);
  return names;
}

// With a hash, this is the base of an adapter whose trained tensors are in a checkpoint. `adapter`: peft's folder over
// the base.
std::unique_ptr<WeightSource> open_first(const Job& job, comm::World& world, int threads, const Note& note,
                                         const std::string& hash, const std::optional<fs::path>& adapter) {
  const Recipe& recipe = job.recipe;
  const auto with_hash = [&](std::unique_ptr<WeightSource> weights, const fs::path& path) {
    return hash.empty() ? std::move(weights) : require_hash(std::move(weights), {hash, path.string()}, *job.model);
  };
  // `base`: opens the weights once more.
  const auto with_adapter = [&](std::unique_ptr<WeightSource> weights, auto&& base) {
    if (adapter)
      comm::agree(world, [&] {
        require_peft(*adapter);
        BaseAgain again{job.model_path(), {}};
        if (world.rank() == 0) again.open = base;  // the ranks have the same base, and need not all compare it
        weights = peft_weights(std::move(weights), *adapter, *job.model, again, note);
      });
    return weights;
  };
  if (recipe.model.init != Init::pretrained) {
    const auto random = [&] { return random_weights(*job.model, recipe.training.seed); };
    return with_adapter(with_hash(with_magnitudes(random(), *job.model), job.model_path().value_or("")), random);
  }
  const fs::path& path = *job.model_path();
  const ModelFolder folder = agree_on_model(path, threads, world, note);
  if (world.rank() == 0 && folder.path() != path) note("weights of " + folder.path().string());
  if (const std::string text = world.rank() == 0 ? folder.base_note() : ""; !text.empty()) note(text);
  const auto open = [&] { return folder.weights(*job.model, recipe.training.seed, recipe.model.new_head); };
  std::unique_ptr<WeightSource> weights;
  comm::agree(world, [&] { weights = open(); });
  if (const std::size_t rounded = weights->rounded(); rounded > 0 && world.rank() == 0)
    note(fmt::format("{} has {} stored as F64: rounded to fp32", folder.path().string(), counted(rounded, "tensor")));
  if (const auto left_out = weights->left_out(); !left_out.empty() && world.rank() == 0)
    note(fmt::format(
        "{} also has {}, which training.objective = \"{}\" does not use: it is not trained, and exports leave it out",
        folder.path().string(), fmt::join(left_out, ", "), models::name_of(job.model->objective)));
  if (!folder.has_adapter()) weights = with_magnitudes(std::move(weights), *job.model);
  weights = with_adapter(with_hash(std::move(weights), path), open);
  // Tensors of the adapter, or of the checkpoint that the base belongs to, do not count.
  const auto initialised = hash.empty() ? weights->initialised() : frozen_of(weights->initialised(), *job.model);
  if (!initialised.empty() && world.rank() == 0)
    note(fmt::format("{}{}: initialised from {}",
                     recipe.model.new_head ? "model.new_head = true: " : folder.path().string() + " has no ",
                     fmt::join(initialised, ", "),
                     folder.has_adapter() ? "the training.seed of its run"
                                          : fmt::format("training.seed = {}", recipe.training.seed)));
  return weights;
}
}  // namespace

std::unique_ptr<WeightSource> first_weights(const Job& job, comm::World& world, int threads, const Note& note) {
  return open_first(job, world, threads, note, {}, job.adapter().path);
}

std::unique_ptr<WeightSource> first_base(const Job& job, comm::World& world, int threads, const Note& note,
                                         const std::string& hash) {
  return open_first(job, world, threads, note, hash, std::nullopt);
}

}  // namespace strata::runtime
