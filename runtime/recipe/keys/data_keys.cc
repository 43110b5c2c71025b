#include <optional>
#include <utility>

#include "models/files/config.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

RecipeKey sources() {
  // A table {files, weight}; nullopt if the value is anything else.
  const auto source_of = [](const Value& v, const fs::path& folder) -> std::optional<DataSource> {
    const auto* table = std::get_if<RecipeTable>(&v.value);
    if (!table) return std::nullopt;
    DataSource out;
    for (const auto& [name, value] : *table) {
      if (name == "files")
        out.files = patterns_of("data.train", value, folder).value_or(std::vector<std::string>{});
      else if (name == "weight")
        out.weight = number_of(value).value_or(0);
      else
        return std::nullopt;
    }
    if (out.files.empty() || !(out.weight > 0 && out.weight <= kMaxSourceWeight)) return std::nullopt;
    return out;
  };
  auto set = [source_of](Recipe& recipe, const Value& v, const fs::path& folder) {
    std::vector<DataSource> out;
    const auto* list = std::get_if<std::vector<Value>>(&v.value);
    if (list && !list->empty() && std::holds_alternative<RecipeTable>(list->front().value)) {
      for (const Value& item : *list) {
        auto source = source_of(item, folder);
        if (!source) return false;
        out.push_back(std::move(*source));
      }
    } else {
      auto files = patterns_of("data.train", v, folder);
      if (!files) return false;
      if (!files->empty()) out.push_back({std::move(*files)});
    }
    recipe.data.train = std::move(out);
    return true;
  };
  auto text = [](const Recipe& recipe) {
    const auto& train = recipe.data.train;
    if (train.empty()) return std::string("[]");
    if (train.size() == 1) return text_of_list(train.front().files);
    std::string out;
    for (const DataSource& source : train)
      out += fmt::format("{}{{files = {}, weight = {}}}", out.empty() ? "" : ", ", text_of_list(source.files),
                         source.weight);
    return "[" + out + "]";
  };
  return {"data.train",
          "a path or glob, a list of them, or a list of tables {files = ..., weight = ...} with weights above 0, at "
          "most 1e9",
          "token files to train on; with several sources, how often a sequence comes from each (weight, default 1)",
          set, text};
}

RecipeKey preset() {
  Choices<std::string> names;
  for (const std::string_view name : models::preset_names()) names.emplace_back(name, name);
  return choice<std::string>("model.preset", std::move(names), STRATA_AT(model.preset),
                             "a built-in model shape with random weights, instead of model.path");
}

}  // namespace

std::vector<RecipeKey> model_keys() {
  return {
      path("model.path", STRATA_AT(model.path), "Hugging Face directory: config.json and safetensors"),
      preset(),
      choice<Init>("model.init", {{"pretrained", Init::pretrained}, {"random", Init::random}}, STRATA_AT(model.init),
                   "weights from model.path, or random ones from training.seed"),
      flag("model.new_head", STRATA_AT(model.new_head),
           "continue from a classifier with other classes: the classes are those of the training data, and the layer "
           "that scores them is initialised from training.seed, whatever model.path has"),
      choice<FrozenFormat>("model.frozen_format", {{"compute", FrozenFormat::compute}, {"nf4", FrozenFormat::nf4}},
                           STRATA_AT(model.frozen_format),
                           "how frozen matrices of blocks' linear layers are stored, gathered and offloaded: in "
                           "training.precision, or in bitsandbytes' 4-bit format, unpacked before use"),
      flag("model.double_quant", STRATA_AT(model.double_quant),
           "nf4: store the scale of every 64 elements in 8 bits (4.13 bits per element); false: in fp32 (4.5 bits), as "
           "virtual shards do with the same values"),
  };
}

std::vector<RecipeKey> data_keys() {
  return {
      sources(),
      paths("data.validation", "a path or glob, or a list of them", STRATA_AT(data.validation),
            "token files to evaluate on"),
      integer("data.seq_len", 1, 1 << 24, STRATA_AT(data.seq_len), "tokens per sequence"),
      choice<DataOrder>("data.order", {{"shuffle", DataOrder::shuffle}, {"sequential", DataOrder::sequential}},
                        STRATA_AT(data.order), "order of the sequences; shuffle depends only on training.seed"),
      choice<Packing>(
          "data.packing",
          {{"auto", Packing::automatic}, {"stream", Packing::stream}, {"documents", Packing::documents}},
          STRATA_AT(data.packing),
          "cut one stream of tokens, or let whole documents share sequences without seeing each other; auto: documents "
          "if a token file has a mask or labels"),
      choice<LongDocuments>(
          "data.long", {{"cut", LongDocuments::cut}, {"drop", LongDocuments::drop}, {"refuse", LongDocuments::refuse}},
          STRATA_AT(data.long_documents), "treatment of documents longer than data.seq_len, if documents are packed"),
      flag("data.any_tokenizer", STRATA_AT(data.any_tokenizer),
           "accept tokens from a tokenizer other than that of model.path"),
  };
}

}  // namespace strata::runtime
