#include "runtime/checkpoint/export/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "base/json/json_writer.h"
#include "base/words.h"
#include "models/files/safetensors.h"
#include "models/objective.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/weights/adapter/adapter_weights.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "runtime/weights/quantised_weights.h"
#include "runtime/weights/tensor_match.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 20;  // elements per read and write

// The files that transformers reads in addition to config.json and the weights.
constexpr std::string_view kTokenizerFiles =
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json merges.txt vocab.txt "
    "tokenizer.model spiece.model sentencepiece.bpe.model bpe.codes chat_template.jinja generation_config.json";

// A file written sequentially.
class Sequential {
 public:
  Sequential(FileSystem& system, const fs::path& path) : file_(system.create(path)) {}
  void write(std::span<const std::byte> bytes) {
    file_->write(offset_, bytes);
    offset_ += bytes.size();
  }
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void close() { file_->sync(); }

 private:
  std::unique_ptr<WritableFile> file_;
  std::uint64_t offset_ = 0;
};

void write_text(FileSystem& system, const fs::path& path, std::string_view text) {
  Sequential file(system, path);
  file.write(text);
  file.close();
}

// The temporary folder of an export; removed unless it was renamed to its target.
class TemporaryFolder {
 public:
  TemporaryFolder(FileSystem& system, const fs::path& target) : system_(system), path_(name_next_to(target)) {
    make_durable_folder(system_, fs::absolute(target).parent_path());
    system_.make_folder(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }
  void put(const fs::path& target) {
    system_.sync_folder(path_);
    std::error_code ignored;
    fs::remove(target, ignored);  // succeeds only on an empty folder
    system_.rename(path_, target);
    path_.clear();
    const fs::path parent = fs::absolute(target).parent_path();
    system_.sync_folder(parent);
  }

 private:
  FileSystem& system_;
  fs::path path_;
};

// A parameter by its place in the model and, if it is quantised, the index of one of its tensors.
struct TensorSource {
  std::size_t unit, parameter;
  std::optional<std::size_t> tensor = {};
};

void write_tensor(Sequential& file, const WeightSource& weights, const TensorSource& source, std::size_t size,
                  device::DType dtype, ProgressCounter& progress) {
  std::vector<float> values(std::min(size, kPiece));
  std::vector<std::byte> stored(values.size() * size_of(dtype));
  weights.prefetch(source.unit, source.parameter, 0, values.size());
  for (std::size_t begin = 0; begin < size; begin += kPiece) {
    const auto piece = std::span(values).first(std::min(kPiece, size - begin));
    const std::size_t next = begin + piece.size();
    weights.prefetch(source.unit, source.parameter, next, std::min(kPiece, size - next));
    weights.read(source.unit, source.parameter, begin, piece);
    device::visit(dtype, [&](auto zero) {
      using T = decltype(zero);
      auto* out = reinterpret_cast<T*>(stored.data());
      for (std::size_t i = 0; i < piece.size(); ++i) out[i] = device::from_float<T>(piece[i]);
    });
    file.write(std::span(stored).first(piece.size() * size_of(dtype)));
    progress.add(piece.size() * size_of(dtype));
  }
}

void write_weights(FileSystem& system, const fs::path& folder, const models::Model& model, const WeightSource& weights,
                   const QuantisedExport* quantised, const ExportOptions& options) {
  std::vector<models::TensorSpec> tensors;
  std::vector<TensorSource> sources;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit)
    for (std::size_t p = 0; p < model.units[unit]->parameters().size(); ++p) {
      if (quantised && quantised->has(unit, p)) {
        const std::size_t first = tensors.size();
        for (models::TensorSpec& tensor : quantised->tensors(unit, p)) {
          sources.push_back({unit, p, tensors.size() - first});
          tensors.push_back(std::move(tensor));
        }
        continue;
      }
      const models::Parameter& parameter = model.units[unit]->parameters()[p];
      tensors.push_back({parameter.name, options.dtype, parameter.shape});
      sources.push_back({unit, p});
      if (model.copy_in_files && model.copy_in_files->of == parameter.name) {
        tensors.push_back({model.copy_in_files->name, options.dtype, parameter.shape});
        sources.push_back({unit, p});
      }
    }
  const models::ShardPlan plan = models::plan_shards(tensors, options.shard_bytes);
  std::uint64_t bytes = 0;
  for (const models::TensorSpec& tensor : tensors) bytes += tensor.bytes();
  ProgressCounter progress(options.advance, bytes);
  for (const models::ShardPlan::File& shard : plan.files) {
    std::vector<models::TensorSpec> in_file;
    for (const std::size_t i : shard.tensors) in_file.push_back(tensors[i]);
    Sequential file(system, folder / shard.name);
    file.write(models::safetensors_header(in_file));
    for (const std::size_t i : shard.tensors) {
      const TensorSource& source = sources[i];
      if (quantised && source.tensor)
        quantised->write(source.unit, source.parameter, *source.tensor, [&](std::span<const std::byte> piece) {
          file.write(piece);
          progress.add(piece.size());
        });
      else
        write_tensor(file, weights, source, tensors[i].bytes() / size_of(options.dtype), options.dtype, progress);
    }
    file.close();
  }
  if (plan.files.size() > 1)
    write_text(system, folder / "model.safetensors.index.json", models::safetensors_index(plan, tensors));
}

std::string config_json(models::Config config, device::DType dtype) {
  // The config may name a model without a head ("BertModel"), or no architecture at all.
  config.override_key("architectures",
                      JsonArray().add(models::architecture_of(config, models::objective_of(config))).text());
  // transformers 4 spells it torch_dtype, transformers 5 dtype: keep the model's spelling.
  config.override_key(config.has("torch_dtype") ? "torch_dtype" : "dtype",
                      dtype == device::DType::fp32 ? R"("float32")" : R"("bfloat16")");
  return config.to_json();
}

// Provides a model's weights to a model that stores some of the same tensors transposed: those of a GPT-2 that
// bitsandbytes quantised, to a GPT-2 as transformers stores it. Keeps one matrix in memory.
class TransposedWeights final : public ForwardedWeights {
 public:
  TransposedWeights(const WeightSource& weights, const models::Model& from, const models::Model& to)
      : ForwardedWeights(weights), from_(from) {
    STRATA_CHECK_EQ(from.units.size(), to.units.size());
    // Shapes do not show which matrices are transposed, because a matrix may be square.
    for (std::size_t unit = 0; unit < from.units.size(); ++unit) {
      auto& turned = transposed_.emplace_back(from.units[unit]->parameters().size());
      const auto stored = from.units[unit]->linear_layers(), wanted = to.units[unit]->linear_layers();
      for (std::size_t layer = 0; layer < stored.size(); ++layer)
        for (std::size_t p = 0; p < turned.size(); ++p)
          if (from.units[unit]->parameters()[p].name == stored[layer].name + ".weight")
            turned[p] = stored[layer].input_major != wanted[layer].input_major;
    }
  }

  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    if (!transposed_[unit][parameter]) return weights_.read(unit, parameter, begin, out);
    const auto& shape = from_.units[unit]->parameters()[parameter].shape;
    const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
    const std::scoped_lock lock(mutex_);
    if (std::pair(unit, parameter) != kept_ || matrix_.empty()) {
      matrix_.resize(rows * columns);
      weights_.read(unit, parameter, 0, matrix_);
      kept_ = {unit, parameter};
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = matrix_[(begin + i) % rows * columns + (begin + i) / rows];
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    if (!transposed_[unit][parameter]) weights_.prefetch(unit, parameter, begin, count);
  }
  bool quantised(std::size_t, std::size_t, device::StorageFormat) const override { return false; }

 private:
  const models::Model& from_;
  std::vector<std::vector<bool>> transposed_;  // by unit and parameter
  mutable std::mutex mutex_;
  mutable std::pair<std::size_t, std::size_t> kept_;  // unit and parameter of the matrix
  mutable std::vector<float> matrix_;
};

void require_new(const fs::path& to) {
  std::error_code ignored;
  const fs::file_status there = fs::symlink_status(to, ignored);
  if (fs::exists(there) && !(fs::is_directory(there) && fs::is_empty(to, ignored)))
    fail(Exit::usage, "{} exists and is {}: give a new folder to export to", to.string(),
         fs::is_directory(there) ? "not empty" : "not a folder");
}

std::unique_ptr<models::Model> adapted_model(const ModelFolder& folder, const models::Config& config) {
  models::RunShape shape{1, 1, device::DType::fp32, 1, false};
  shape.adapter = folder.adapter().shared();
  shape.quantise = folder.quantised();
  return models::make_model(config, shape);
}

// peft's name of the task. It has none for masked language modelling.
std::string task_of(models::Objective objective) {
  switch (objective) {
    case models::Objective::causal_lm:
      return "CAUSAL_LM";
    case models::Objective::sequence_classification:
      return "SEQ_CLS";
    case models::Objective::token_classification:
      return "TOKEN_CLS";
    case models::Objective::masked_lm:
      break;
  }
  return {};
}

}  // namespace

void export_model(const models::Config& config, const WeightSource& weights, const std::optional<fs::path>& tokenizer,
                  const fs::path& to, const ExportOptions& options) {
  std::error_code ignored;
  require_new(to);
  const auto model = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
  std::optional<QuantisedExport> quantised;
  models::Config written = config;
  written.remove("quantization_config");
  if (options.quantised) {
    quantised.emplace(*model, weights, options.dtype, options.unpacked_as_read ? &config : nullptr);
    if (!quantised->any())
      fail(Exit::usage,
           "--quantized writes the tensors that are stored in 4 bits, but this model has none: train it with "
           "model.frozen_format = \"nf4\", or leave the option out");
    if (model->family == "gpt2" && !model->quantised_in_files)
      fail(Exit::usage,
           "--quantized writes a gpt2 model only if it was read from 4-bit files, because bitsandbytes quantises the "
           "transposed matrices: leave the option out");
    quantised->describe(written);
  }
  const auto system = posix_file_system();
  TemporaryFolder out(*system, (to / "").parent_path());
  write_text(*system, out.path() / "config.json", config_json(written, options.dtype));
  const auto copy = [&](const fs::path& name) {
    const fs::path file = *tokenizer / name;
    if (!fs::is_regular_file(file, ignored)) return;
    const MappedFile bytes(file);
    Sequential made(*system, out.path() / name);
    made.write(bytes.bytes());
    made.close();
  };
  if (tokenizer) {
    for (const std::string_view name : split_list(kTokenizerFiles)) copy(name);
    // Named chat templates.
    const fs::path more = "additional_chat_templates";
    if (fs::is_directory(*tokenizer / more, ignored)) {
      system->make_folder(out.path() / more);
      for (const auto& entry : fs::directory_iterator(*tokenizer / more))
        if (entry.path().extension() == ".jinja") copy(more / entry.path().filename());
      system->sync_folder(out.path() / more);
    }
  }
  if (options.quantised || !model->quantised_in_files) {
    write_weights(*system, out.path(), *model, weights, quantised ? &*quantised : nullptr, options);
  } else {
    const auto plain = models::make_model(written, {1, 1, device::DType::fp32, 1, false});
    write_weights(*system, out.path(), *plain, TransposedWeights(weights, *model, *plain), nullptr, options);
  }
  out.put((to / "").parent_path());
}

std::vector<std::string> export_model(const ModelFolder& folder, const fs::path& to, const ExportOptions& options) {
  models::Config config = folder.config();
  if (!folder.is_checkpoint()) {
    untie_if_different(config, folder.path(), std::nullopt);
    add_adapter_note(config, folder.path());
  }
  if (folder.has_adapter()) {
    const auto adapted = adapted_model(folder, config),
               plain = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
    std::unique_ptr<WeightSource> weights = folder.weights(*adapted);
    verify_base(*weights, *adapted);
    // In 4 bits, adapters cannot be merged and modules_to_save cannot stay, so the adapter is left out.
    weights = options.quantised
                  ? without_adapter(quantised_weights(folder.base_weights(*adapted), *adapted), *adapted, *plain)
                  : merged_weights(quantised_weights(std::move(weights), *adapted), *adapted, *plain);
    export_model(config, *weights, folder.hugging_face(), to, options);
    return config.notes();
  }
  const auto model = models::make_model(config, {1, 1, device::DType::fp32, 1, false});
  export_model(config, *folder.weights(*model), folder.hugging_face(), to, options);
  return config.notes();
}

std::vector<std::string> export_adapter(const ModelFolder& folder, const fs::path& to, const Advance& advance) {
  const Recipe::AdapterKeys keys = folder.adapter();
  if (keys.kind == AdapterKind::none)
    fail(Exit::usage, "{} has no adapter: leave --adapter out", folder.path().string());
  require_new(to);
  const models::Config config = folder.config();
  const auto model = adapted_model(folder, config);
  // Only the checkpoint is read: the base model may no longer exist.
  const Checkpoint checkpoint(folder.path());
  const auto weights = checkpoint_weights(checkpoint, *model);

  PeftConfig peft{keys.lora, folder.base().value_or("").string()};
  const bool classifies = model->loss_unit().classes() > 0;
  if (classifies) peft.adapter = *models::with_classifiers_saved(peft.adapter);
  // As in peft, "all-linear" is written out as the list of the modules that it matched.
  models::ModuleNames& targets = peft.adapter.target_modules;
  bool every = targets.pattern && *targets.pattern == models::kAllLinear;
  if (every) targets = {};
  std::vector<models::TensorSpec> tensors;
  std::vector<TensorSource> sources;
  std::uint64_t bytes = 0;
  for (std::size_t unit = 0; unit < model->units.size(); ++unit) {
    for (const auto& layer : model->units[unit]->linear_layers()) {
      peft.input_major = peft.input_major || layer.input_major;
      if (every && layer.low_rank.rank > 0) targets.names.push_back(layer.name);
    }
    for (std::size_t p = 0; p < model->units[unit]->parameters().size(); ++p) {
      const models::Parameter& parameter = model->units[unit]->parameters()[p];
      if (!parameter.trained()) continue;
      tensors.push_back({kPeftPrefix + parameter.name, device::DType::fp32, parameter.shape});
      sources.push_back({unit, p});
      bytes += tensors.back().bytes();
    }
    // peft saves a trained tied table under both of its names.
    if (const auto& shared = model->units[unit]->shared(); shared && !shared->frozen) {
      const models::Parameter& table = model->units[shared->unit]->parameters()[shared->parameter];
      tensors.push_back({kPeftPrefix + shared->name, device::DType::fp32, table.shape});
      sources.push_back({shared->unit, shared->parameter});
      bytes += tensors.back().bytes();
    }
  }
  const auto system = posix_file_system();
  TemporaryFolder out(*system, (to / "").parent_path());
  write_text(*system, out.path() / kPeftConfigName, peft_config_json(peft, task_of(model->objective)));
  ProgressCounter progress(advance, bytes);
  Sequential file(*system, out.path() / kPeftWeightsName);
  file.write(models::safetensors_header(tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i)
    write_tensor(file, *weights, sources[i], tensors[i].bytes() / sizeof(float), device::DType::fp32, progress);
  file.close();
  out.put((to / "").parent_path());
  std::vector<std::string> notes;
  // Programs other than peft refuse every classifier, because its head is in modules_to_save.
  if (model->objective == models::Objective::causal_lm) notes = notes_of_readers(peft.adapter);
  try {
    if (const auto initialised = folder.weights(*model)->initialised(); !initialised.empty())
      notes.push_back(fmt::format(
          "{} has no {}, which the run initialised and the adapter does not hold: a program that loads the two would "
          "initialise it differently; strata export without --adapter writes the whole model, including it",
          folder.base().value_or("").string(), fmt::join(initialised, ", ")));
  } catch (const Error&) {
    // The base no longer exists.
  }
  return notes;
}

}  // namespace strata::runtime
