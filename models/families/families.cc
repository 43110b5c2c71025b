#include "models/families/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/quantity.h"
#include "base/words.h"
#include "models/files/quantisation.h"
#include "models/parameter.h"

namespace strata::models {
namespace {

// For each `model_type`: the function that makes the model, the objective if the config names no head, and the prefix
// of transformers' class names.
struct Family {
  std::string_view name;
  std::unique_ptr<Model> (*make)(const Config& config, const RunShape& run);
  Objective objective;
  std::string_view prefix, causal = "ForCausalLM";
};
constexpr Family kFamilies[] = {
    {"bert", make_bert, Objective::masked_lm, "Bert"},
    {"distilbert", make_distilbert, Objective::masked_lm, "DistilBert"},
    {"gpt2", make_gpt2, Objective::causal_lm, "GPT2", "LMHeadModel"},
    {"llama", make_llama, Objective::causal_lm, "Llama"},
    {"mistral", make_llama, Objective::causal_lm, "Mistral"},
    {"modernbert", make_modernbert, Objective::masked_lm, "ModernBert"},
    {"qwen2", make_llama, Objective::causal_lm, "Qwen2"},
    {"qwen3", make_llama, Objective::causal_lm, "Qwen3"},
    {"roberta", make_roberta, Objective::masked_lm, "Roberta"},
    {"xlm-roberta", make_roberta, Objective::masked_lm, "XLMRoberta"},
    {"camembert", make_roberta, Objective::masked_lm, "Camembert"},
};

const Family& family_of(const Config& config) {
  const std::string family = config.require_text("model_type");
  const Family* const known = std::ranges::find(kFamilies, family, &Family::name);
  if (known != std::end(kFamilies)) {
    refuse_unsupported_keys(config);
    return *known;
  }
  std::string names;
  for (const Family& f : kFamilies) names += (names.empty() ? "" : ", ") + std::string(f.name);
  fail(Exit::usage, "{} is \"{}\", which is not supported; the supported ones are: {}", config.describe("model_type"),
       family, names);
}

// Ignores keys of transformers 4 and 5 that say how a model is stored, run or sampled, but do not affect its results.
void ignore_neutral_keys(const Config& config) {
  (void)config.integers("eos_token_id");  // generate reads it; this refuses a malformed value in every command
  constexpr std::string_view kKeys =
      "architectures torch_dtype dtype transformers_version use_cache bos_token_id eos_token_id pad_token_id "
      "sep_token_id unk_token_id decoder_start_token_id n_ctx return_dict output_hidden_states output_attentions "
      "torchscript use_bfloat16 id2label label2id num_labels problem_type finetuning_task tokenizer_class prefix "
      "task_specific_params gradient_checkpointing chunk_size_feed_forward is_decoder tie_encoder_decoder "
      "tf_legacy_loss pretraining_tp reorder_and_upcast_attn attn_implementation initializer_range "
      "max_position_embeddings n_positions vocab_size temperature top_k top_p max_length min_length do_sample "
      "num_beams repetition_penalty length_penalty max_new_tokens auto_map is_llama_config";
  for (const std::string_view key : split_list(kKeys)) config.ignore({key});
  for (const std::string& key : config.unread())
    if (key.starts_with('_') || key.starts_with("summary_") || key.starts_with("id2label.") ||
        key.starts_with("label2id.") || key.starts_with("strata_") || key.starts_with("task_specific_params."))
      config.ignore({key});
}

// The remaining keys change nothing. In a file, each is reported once and ignored. In the recipe, they are an error.
void name_unread(const Config& config, std::string_view family) {
  std::vector<std::string> names;
  bool code = false;
  for (const std::string& key : config.unread()) {
    if (config.overridden(key))
      fail(Exit::usage, "{} is not a key that {} models have: leave it out", config.describe(key), family);
    // Names an object by its own key, unless the family reads some of it.
    std::string root = key.substr(0, key.find('.'));
    if (root.starts_with("rope_")) root = key;  // the family reads this group
    if (root == "auto_map") {
      code = true;
      continue;
    }
    if (names.empty() || names.back() != root) names.push_back(std::move(root));
  }
  for (std::string& key : config.dotted_keys())
    names.push_back(config.has(key) || !config.keys_inside(key).empty()
                        ? fmt::format("\"{}\" (one key, whose name has a dot)", key)
                        : std::move(key));
  std::ranges::sort(names);
  if (code)
    config.add_note(fmt::format("{}: the model comes with its own code, which is not run; it is read as a {} model",
                                config.describe("auto_map"), family));
  if (!names.empty())
    config.add_note(fmt::format("{} has {} that {} models do not read, so {} nothing: {}", config.source(),
                                counted(names.size(), "key"), family, names.size() == 1 ? "it changes" : "they change",
                                fmt::join(names, ", ")));
}

}  // namespace

std::size_t size_of_key(const Config& config, std::string_view key, std::size_t most) {
  const auto size = static_cast<std::size_t>(config.require_int(key));
  if (size > most) fail(Exit::usage, "{} is {}: at most {} is supported", config.describe(key), size, most);
  return size;
}

double positive_or(const Config& config, std::string_view key, double otherwise, Zero zero) {
  const double value = config.number_or(key, otherwise);
  if (std::isfinite(value) && (value > 0 || (value == 0 && zero == Zero::allowed))) return value;
  fail(Exit::usage, "{} is {}: it must be {}", config.describe(key), value,
       std::isinf(value)       ? "finite"
       : zero == Zero::allowed ? "at least 0"
                               : "above 0");
}

std::size_t size_or_default(const Config& config, std::string_view key, std::size_t otherwise, std::size_t most) {
  if (config.has(key)) return size_of_key(config, key, most);
  config.add_note(fmt::format("{} has no {}: it is {}, as in transformers", config.source(), key, otherwise));
  return otherwise;
}

std::string_view own_or_other(const Config& config, std::string_view own, std::string_view other) {
  config.ignore({own, other});
  if (!config.has(own) || !config.has(other)) return config.has(other) ? other : own;
  if (config.overridden(own) != config.overridden(other)) return config.overridden(own) ? own : other;
  if (config.json(own) != config.json(other))
    fail(Exit::usage, "{} is {}, and {} is {}: they are two names of one size; leave one out", config.describe(own),
         config.json(own), config.describe(other), config.json(other));
  return own;
}

void name_family(Config& config) {
  if (config.has("model_type")) return;
  const auto lower = [](std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    return out;
  };
  for (const std::string& name : config.texts("architectures"))
    for (const Family& family : kFamilies)
      for (const std::string_view suffix : {"For", "LMHead", "Model", "DoubleHeads"})
        if (lower(name).starts_with(lower(fmt::format("{}{}", family.prefix, suffix)))) {
          config.add("model_type", std::string(family.name));
          config.add_note(fmt::format("{} has no model_type: it is {}, as architectures name {}", config.source(),
                                      family.name, name));
          return;
        }
}

std::size_t size_or(const Config& config, std::string_view key, std::size_t otherwise, std::size_t most) {
  return config.has(key) ? size_of_key(config, key, most) : otherwise;
}

std::vector<bool> sliding_layers(const Config& config, std::size_t layers) {
  const std::vector<std::string> types = config.texts("layer_types");
  if (config.has("layer_types") && types.size() != layers)
    fail(Exit::usage,
         "{} has {}, and num_hidden_layers is {}: give one for each layer (model.config.layer_types), or set "
         "model.config.num_hidden_layers={}",
         config.describe("layer_types"), counted(types.size(), "entry", "entries"), layers, types.size());
  std::vector<bool> sliding;
  for (const std::string& type : types) {
    // "attention" is transformers' older name for full attention.
    if (type != "full_attention" && type != "attention" && type != "sliding_attention")
      fail(Exit::usage, "{} has \"{}\", which is not supported; full_attention and sliding_attention are",
           config.describe("layer_types"), type);
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

float dropout_probability(const Config& config, std::string_view key, double otherwise) {
  const double p = config.number_or(key, otherwise);
  if (!(p >= 0 && p < 1))
    fail(Exit::usage, "{} is {}: a dropout probability must be at least 0 and below 1", config.describe(key), p);
  return static_cast<float>(p);
}

void require_one_of(const Config& config, std::string_view key, std::initializer_list<std::string_view> built,
                    std::string_view otherwise) {
  const std::string value = config.text_or(key, otherwise);
  if (std::find(built.begin(), built.end(), value) != built.end()) return;
  fail(Exit::usage, "{} is \"{}\", which is not supported; the supported ones are: {}", config.describe(key), value,
       fmt::join(built, ", "));
}

void require_gelu(const Config& config, std::string_view key) {
  require_one_of(config, key, {"gelu", "gelu_python"}, "gelu");
}
Gelu read_gelu(const Config& config, std::string_view key) {
  require_one_of(
      config, key,
      {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate", "gelu", "gelu_python"},
      "gelu_new");
  const std::string value = config.text_or(key, "gelu_new");
  return value == "gelu" || value == "gelu_python" ? Gelu::erf : Gelu::tanh;
}

void require_bool(const Config& config, std::string_view key, bool built, bool otherwise) {
  if (config.bool_or(key, otherwise) != built)
    fail(Exit::usage, "{} is {}, which is not supported; only {} is", config.describe(key), !built, built);
}

std::string architecture_of(const Config& config, Objective objective) {
  const Family& family = family_of(config);
  const std::string_view suffixes[] = {family.causal, "ForMaskedLM", "ForSequenceClassification",
                                       "ForTokenClassification"};
  return fmt::format("{}{}", family.prefix, suffixes[static_cast<std::size_t>(objective)]);
}

Objective objective_of(const Config& config) {
  const Family& family = family_of(config);
  return named_objective(config).value_or(family.objective);
}

bool predicts_next(const Config& config) {
  return family_of(config).objective == Objective::causal_lm;
}

void require_objective(const RunShape& run, std::string_view family, std::initializer_list<Objective> built) {
  if (std::ranges::find(built, *run.objective) != built.end()) return;
  std::string names;
  for (const Objective objective : built)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name_of(objective));
  fail(Exit::usage, "training.objective = \"{}\" is not supported for {} models; the supported ones are: {}",
       name_of(*run.objective), family, names);
}

std::unique_ptr<Model> make_model(const Config& config, const RunShape& asked) {
  if (asked.tokens() > kMaxTokens)
    fail(Exit::usage,
         "training.micro_batch_size={} times data.seq_len={} is {} tokens; a micro-batch has at most {}: use more of "
         "them (training.gradient_accumulation_steps)",
         asked.batch, asked.seq, asked.tokens(), kMaxTokens);
  const Family& family = family_of(config);
  RunShape run = asked;
  if (!run.objective) run.objective = objective_of(config);
  const bool classifies =
      *run.objective == Objective::sequence_classification || *run.objective == Objective::token_classification;
  if (run.cache > 0 && classifies && family.objective == Objective::causal_lm)  // encoders have their own message
    fail(Exit::usage,
         "{} belongs to a classifier ({}), which does not generate: strata predict labels texts with it; generate "
         "needs a model for {}",
         config.source(), name_of(*run.objective), name_of(Objective::causal_lm));
  if (run.adapter && classifies) run.adapter = with_classifiers_saved(*run.adapter);
  if (run.adapter && !run.training && run.adapter->dropout > 0) {
    Adapter still = *run.adapter;
    still.dropout = 0;
    run.adapter = std::make_shared<const Adapter>(std::move(still));
  }
  if (auto quantisation = quantisation_of(config)) {
    run.quantise = quantisation->format;
    run.not_quantised = std::make_shared<const std::vector<std::string>>(std::move(quantisation->skipped));
  }
  std::unique_ptr<Model> model = family.make(config, run);
  // A tensor that two units share is frozen under either of its names.
  const std::size_t patterns = run.freeze.size();
  for (const auto& unit : model->units)
    if (const auto& shared = unit->shared(); shared && !shared->frozen && is_frozen_by(run.freeze, shared->name))
      run.freeze.push_back(model->units[shared->unit]->parameters()[shared->parameter].name);
  if (run.freeze.size() > patterns) model = family.make(config, run);
  std::uint32_t linear_layers = 0;
  for (const auto& unit : model->units) {
    unit->number_linear_layers(linear_layers);
    linear_layers += static_cast<std::uint32_t>(unit->linear_layers().size());
  }
  model->objective = *run.objective;
  if (run.quantise) {
    model->quantised_as = *run.quantise;
    model->quantised = run.shards.of > 1 ? device::StorageFormat::nf4_plain : *run.quantise;
  }
  model->quantised_in_files = run.not_quantised != nullptr;
  model->batch.tokens = run.tokens();
  model->batch.loss_rows = run.loss_rows;
  model->batch.class_words = model->loss_unit().class_words();
  if (!run.class_weights.empty()) {
    const std::size_t classes = model->loss_unit().classes();
    if (classes != run.class_weights.size())
      fail(Exit::usage, "training.class_weights has {}, and the model has {}: give one for each",
           counted(run.class_weights.size(), "number"), counted(classes, "class", "classes"));
    if (std::ranges::all_of(run.class_weights, [](const auto& weight) { return weight == 0; }))
      fail(Exit::usage,
           "training.class_weights are all 0: nothing would be learned; give at least one class a larger weight");
    model->class_weights = run.class_weights;
    model->class_weights_at = (model->constants_bytes + 255) / 256 * 256;
    model->constants_bytes = model->class_weights_at + classes * sizeof(float);
  }
  ignore_neutral_keys(config);
  name_unread(config, family.name);
  if (run.cache > model->max_positions)
    fail(Exit::usage, "the prompt and the new tokens take {} positions, but the model has only {}", run.cache,
         model->max_positions);
  if (run.seq > model->max_positions)
    fail(Exit::usage, "data.seq_len is {}, but the model has positions for only {} tokens", run.seq,
         model->max_positions);
  return model;
}

}  // namespace strata::models
