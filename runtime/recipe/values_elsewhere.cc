#include "runtime/recipe/values_elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/number.h"
#include "base/words.h"
#include "runtime/recipe/names/names_elsewhere.h"
#include "runtime/recipe/toml_file.h"

namespace strata::runtime {
namespace {

// Values in other programs' configurations, in lower case and without -, _ and spaces.
struct ValuesElsewhere {
  std::string_view keys;    // words
  std::string_view values;  // words
  std::string_view meant;   // empty: none of ours, and the note says what to know
  std::string_view note;
};

constexpr std::string_view kTiers = "zero.parameters zero.gradients zero.optimizer zero.activations";

constexpr std::string_view kIntervals = "checkpoint.every evaluation.every";

constexpr ValuesElsewhere kValues[] = {
    {"training.precision", "float16 half fp16mixed 16mixed 16 f16 torch.float16 torch.half mixedfp16", "fp16", ""},
    {"training.precision", "bfloat16 bf16mixed bf16true bfloat brainfloat16 torch.bfloat16 mixedbf16", "bf16", ""},
    {"training.precision", "float32 float full single no 32 32true f32 torch.float32 torch.float", "fp32", ""},
    {"training.precision", "mixed amp auto true", "bf16", "master weights are fp32 at every precision"},
    {"training.precision", "tf32", "fp32", "TF32 is not used"},
    {kTiers, "cpu ram dram memory main hostmemory cpumemory pinned", "host", ""},
    {kTiers, "disk ssd drive drives storage file", "nvme", ""},
    {kTiers, "gpu cuda cuda:0 vram hbm none no false", "device", ""},
    {"device.kind", "gpu cuda:0 nvidia", "cuda", ""},
    {"optimizer.name", "adam torchadam", "adamw", "which is Adam if optimizer.weight_decay = 0"},
    {"optimizer.name",
     "adamwtorch adamwtorchfused adamwhf adamwapexfused fusedadam fusedadamw deepspeedcpuadam cpuadam pagedadamw "
     "pagedadamw32bit adamwanyprecision torch.optim.adamw",
     "adamw", ""},
    {"optimizer.name", "adamw8bit adam8bit pagedadamw8bit adamwbnb8bit pagedadam8bit adamwtorch8bit", "adamw8bit", ""},
    {"optimizer.name", "adamwtorch4bit adamw4bit adam4bit", "adamw8bit", "because moments in 4 bits are not supported"},
    {"optimizer.name",
     "adafactor muon lomo adalomo adagrad rmsprop ademamix stableadamw schedulefreeadamw galoreadamw apolloadamw "
     "sophia",
     "", "this optimizer is not supported"},
    {"optimizer.name", "lion32bit pagedlion pagedlion32bit", "lion", ""},
    {"optimizer.name", "lion8bit pagedlion8bit", "lion", "with optimizer.moments = \"8bit\""},
    {"optimizer.name", "momentum sgdmomentum torch.optim.sgd", "sgd", "with optimizer.momentum"},
    {"optimizer.name", "nesterov sgdnesterov nag", "sgd", "whose optimizer.momentum is not Nesterov's"},
    {"optimizer.moments", "8 int8 uint8 8bits block8", "8bit", ""},
    {"optimizer.moments", "float32 full 32", "fp32", ""},
    {"optimizer.moments", "bfloat16 16", "bf16", ""},
    {"scheduler.name",
     "cosinewithwarmup cosineschedulewithwarmup getcosineschedulewithwarmup warmupcosinelr cosineannealing "
     "cosineannealinglr cosinewithminlr cosinedecay cos",
     "cosine", "with scheduler.warmup_steps and scheduler.min_lr_ratio"},
    {"scheduler.name",
     "linearwithwarmup linearschedulewithwarmup getlinearschedulewithwarmup warmupdecaylr lineardecay polynomial",
     "linear", "with scheduler.warmup_steps and scheduler.min_lr_ratio"},
    {"scheduler.name", "constantwithwarmup constantschedulewithwarmup warmuplr none no", "constant",
     "with scheduler.warmup_steps"},
    {"scheduler.name", "cosinewithrestarts cosineannealingwarmrestarts cosinewithhardrestarts", "cosine",
     "which has no restarts"},
    {"scheduler.name", "inversesqrt reducelronplateau greedy", "constant",
     "or another schedule: this one is not supported"},
    {"parallel.schedule", "gpipe afab fthenb allforward", "all_forward_all_backward", ""},
    {"parallel.schedule", "pipedream pipedreamflush onefoneb", "1f1b", ""},
    {"parallel.schedule", "interleaved1f1b loopedbfs virtualpipeline vpp", "interleaved",
     "with parallel.chunks, the pieces of the model per stage"},
    {"adapter.kind", "qlora", "lora", "with model.frozen_format = \"nf4\""},
    {"adapter.kind", "dora", "lora", "with adapter.dora = true"},
    {"adapter.kind", "rslora", "lora", "with adapter.rslora = true"},
    {"adapter.kind", "peft true yes", "lora", ""},
    {"adapter.kind", "full off no false null", "none", ""},
    {"adapter.init", "kaiming true pytorch", "default", ""},
    {"adapter.init", "normal", "gaussian", ""},
    {"adapter.init", "pissa pissaniter4 pissaniter16 olora corda loftq loraga", "",
     "this initialisation changes the model's own weights, which is not supported"},
    {"adapter.init", "eva orthogonal", "", "this initialisation is not supported"},
    {"model.frozen_format", "int8 8bit 8 fp8 float8", "",
     "8 bits are not supported, but \"nf4\" stores frozen weights in 4 bits"},
    {"model.frozen_format", "4bit 4 int4 fp4 bnb bnb4bit bitsandbytes true", "nf4", ""},
    {"model.frozen_format", "none no off false fp32 fp16 bf16", "compute", "which is training.precision"},
    {"evaluation.metric", "macrof1 f1macro", "eval_f1", "the mean over classes"},
    {"evaluation.metric", "microf1 f1micro", "eval_f1_micro", ""},
    {"evaluation.metric", "matthewscorrelation mcc matthewscorrcoef", "eval_matthews", ""},
    {"evaluation.metric", "auc auroc rocaucscore", "eval_roc_auc", ""},
    {"evaluation.metric", "meansquarederror", "eval_mse", ""},
    {"evaluation.metric", "meanabsoluteerror", "eval_mae", ""},
    {"evaluation.metric", "pearsonr", "eval_pearson", ""},
    {"evaluation.metric", "ppl", "eval_perplexity", ""},
    {"scheduler.name", "warmupstabledecay trapezoidal", "wsd", "with scheduler.warmup_steps"},
    {"training.recompute", "true full all blocks yes on enabled uniform layer layers", "block", ""},
    {"training.recompute", "unsloth offload", "block", "with zero.activations = \"host\" to offload what blocks keep"},
    {"training.recompute", "offloaddisk", "block", "with zero.activations = \"nvme\" to offload what blocks keep"},
    {"training.recompute", "false no off null disabled", "none", ""},
    {"training.objective", "clm lm sft pretraining autoregressive", "causal_lm", ""},
    {"training.objective", "mlm", "masked_lm", ""},
    {"training.objective", "ner tokenclassification", "token_classification", ""},
    {"training.objective", "classification textclassification", "sequence_classification", ""},
    {"data.packing", "true packed pack multipack bfd ffd", "documents", ""},
    {"data.packing", "false no off", "documents", "where no document sees another"},
    {"data.packing", "concat concatenate wrapped", "stream", ""},
    {kIntervals, "epoch epochs steps step", "",
     "this is a number of steps; strata plan shows how many steps an epoch has"},
    {"checkpoint.resume", "true yes latest last", "auto", ""},
    {"checkpoint.resume", "false no", "none", ""},
};

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 64))
    if (c != '-' && c != '_' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool takes(const RecipeKey& key, const RecipeValue& value) {
  Recipe scratch;
  return key.set(scratch, value, {});
}
bool takes_text(const RecipeKey& key, const std::string& text) {
  return takes(key, {.value = text, .shown = ""});
}

// The quoted words in the text of allowed values.
std::vector<std::string> names_allowed(const RecipeKey& key) {
  std::vector<std::string> out;
  for (std::size_t at = 0, end; (at = key.allowed.find('"', at)) != std::string::npos; at = end + 1) {
    end = key.allowed.find('"', at + 1);
    if (end == std::string::npos) break;
    out.push_back(key.allowed.substr(at + 1, end - at - 1));
  }
  return out;
}

// True if `written`, in plain() form, is the same name in another case, with other characters between its words, or
// without the prefix eval_ of metrics.
bool is_same(const std::string& name, std::string_view written) {
  const std::string same = plain(name);
  return same == written || (name.starts_with("eval_") && std::string_view(same).substr(4) == written);
}

// "24GB" for "24gb"; "2GiB" for "2g", as tools with only one kind of G read it.
std::string size_meant(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.'))
    ++digits;
  const std::string number = text.substr(0, digits), unit = plain(std::string_view(text).substr(digits));
  if (number.empty() || unit.empty() || std::string_view("kmgt").find(unit[0]) == std::string_view::npos) return "";
  const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
  const std::string rest = unit.substr(1);
  if (rest == "b" || rest == "byte" || rest == "bytes") return fmt::format("{}{}B", number, letter);
  if (rest.empty() || rest == "i" || rest == "ib") return fmt::format("{}{}iB", number, letter);
  return "";
}

// True if TOML accepts this number: other languages also allow 010, .5 and 5.
bool is_toml(const std::string& number) {
  try {
    const toml::table table = toml::parse("value = " + number + "\n");
    return table.size() == 1 && table.get("value")->is_number();
  } catch (const toml::parse_error&) {
    return false;
  } catch (const TomlAssertion&) {
    return false;
  }
}

// A number or flag in quotes, or a flag in another language's words.
std::optional<RecipeValue> unquoted(const std::string& text) {
  if (const auto integer = parse_number<std::int64_t>(text))
    return RecipeValue{.value = *integer, .shown = is_toml(text) ? text : fmt::format("{}", *integer)};
  if (const auto number = parse_number<double>(text))
    return RecipeValue{.value = *number, .shown = is_toml(text) ? text : fmt::format("{}", *number)};
  const std::string word = plain(text);
  if (word == "true" || word == "yes" || word == "on" || word == "enabled" || word == "enable")
    return RecipeValue{.value = true, .shown = "true"};
  if (word == "false" || word == "no" || word == "off" || word == "disabled" || word == "disable")
    return RecipeValue{.value = false, .shown = "false"};
  return std::nullopt;
}

// The integer that equals a float.
std::optional<RecipeValue> as_integer(double number) {
  constexpr double kExact = 0x1p53;
  if (std::trunc(number) != number || std::abs(number) > kExact) return std::nullopt;
  const auto integer = static_cast<std::int64_t>(number);
  return RecipeValue{.value = integer, .shown = fmt::format("{}", integer)};
}

// What to know about a value that has no counterpart; empty if it is not known either.
std::string note_of(const RecipeValue& value, std::string_view written, const RecipeKey& key) {
  if (const auto* number = std::get_if<double>(&value.value); number && *number > 0 && *number < 1)
    if (key.name == "scheduler.warmup_steps" || has_word(kIntervals, key.name))
      return "this is a number of steps: the ratio x training.max_steps";
  if (const auto* steps = std::get_if<std::int64_t>(&value.value);
      steps && *steps == -1 && key.name == "training.max_steps")
    return "strata plan shows how many steps an epoch has";
  if (const auto* ranks = std::get_if<std::int64_t>(&value.value); ranks && *ranks > 1 && key.name == "parallel.tensor")
    return "set parallel.stages or zero.stage = 3 to divide the model over more ranks";
  for (const ValuesElsewhere& row : kValues)
    if (row.meant.empty() && has_word(row.keys, key.name) && has_word(row.values, written))
      return std::string(row.note);
  return "";
}

}  // namespace

std::string meant_by(const RecipeValue& value, const RecipeKey& key) {
  if (const auto* number = std::get_if<double>(&value.value)) {
    const auto integer = as_integer(*number);
    if (integer && takes(key, *integer)) return "; write " + integer->shown;
  }
  const auto* text = std::get_if<std::string>(&value.value);
  const std::string written = plain(text ? *text : value.shown);
  if (const std::string meant = value_meant(written, key); !meant.empty()) return "; use " + meant;
  if (const std::string note = note_of(value, written, key); !note.empty()) return "; " + note;
  if (const auto* integer = std::get_if<std::int64_t>(&value.value); integer && (*integer == 0 || *integer == 1))
    if (takes(key, {.value = *integer == 1, .shown = ""})) return fmt::format("; use {}", *integer == 1);
  if (!text) return "";
  if (const auto bare = unquoted(*text)) {
    if (takes(key, *bare)) return "; write " + bare->shown + (bare->shown == *text ? " without quotes" : "");
    const auto* number = std::get_if<double>(&bare->value);
    const auto integer = number ? as_integer(*number) : std::nullopt;
    if (integer && takes(key, *integer)) return "; write " + integer->shown;
  }
  if (const std::string size = size_meant(*text); !size.empty() && takes_text(key, size))
    return fmt::format("; use \"{}\"", size);
  for (const bool mistyped : {false, true})
    for (const std::string& name : names_allowed(key)) {
      const bool is_example = name.ends_with('B') || name.find('-') != name.npos;  // of a size or of a range
      if (is_example && std::isdigit(static_cast<unsigned char>(name[0]))) continue;
      const bool same = mistyped ? is_typo(edits(plain(name), written), written.size(), 4) : is_same(name, written);
      if (same && takes_text(key, name)) return fmt::format("; use \"{}\"", name);
    }
  return "";
}

std::string mistake_in_sources(const RecipeValue& value) {
  const auto* list = std::get_if<std::vector<RecipeValue>>(&value.value);
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    const auto* table = std::get_if<RecipeTable>(&(*list)[i].value);
    if (!table) continue;
    bool has_files = false;
    for (const auto& [name, entry] : *table) {
      if (name == "files") {
        has_files = true;
        const auto files = texts_of(entry);
        if (!files || files->empty())
          return fmt::format("source {} has files = {}: expected a path or glob, or a list of them", i + 1,
                             entry.shown);
      } else if (name == "weight") {
        if (const double weight = number_of(entry).value_or(0); !(weight > 0 && weight <= kMaxSourceWeight))
          return fmt::format("source {} has weight = {}: expected a number above 0, at most 1e9", i + 1, entry.shown);
      } else {
        std::string meant = "its keys are files and weight";
        for (const char* known : {"files", "weight"})
          if (is_typo(edits(name, known), name.size(), 4)) meant = fmt::format("did you mean {}?", known);
        return fmt::format("source {} has the unknown key {}: {}", i + 1, name, meant);
      }
    }
    if (!has_files) return fmt::format("source {} has no files: give files = PATH", i + 1);
  }
  return "";
}

bool has_value(const RecipeKey& key, std::string_view value) {
  const std::string written = plain(value);
  return std::ranges::any_of(names_allowed(key), [&](const std::string& name) { return is_same(name, written); });
}

std::string value_meant(std::string_view value, const RecipeKey& key) {
  const std::string written = plain(value);
  for (const ValuesElsewhere& row : kValues) {
    if (row.meant.empty() || !has_word(row.keys, key.name) || !has_word(row.values, written)) continue;
    if (!takes_text(key, std::string(row.meant))) continue;
    return fmt::format("\"{}\"{}{}", row.meant, row.note.empty() ? "" : ", ", row.note);
  }
  return "";
}

}  // namespace strata::runtime
