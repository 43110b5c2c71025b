#include "runtime/objective/objective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "models/files/config.h"
#include "models/objective.h"
#include "runtime/data/files/labels.h"
#include "runtime/data/open_data.h"
#include "runtime/data/sequences/packed_sequences.h"
#include "runtime/objective/rules.h"

namespace strata::runtime {
namespace {

const ObjectiveRules& rules_of(models::Objective objective) {
  static constexpr std::array<const ObjectiveRules*, 4> kRules = {&kCausalLm, &kMaskedLm, &kSequenceClassification,
                                                                  &kTokenClassification};
  const auto index = static_cast<std::size_t>(objective);
  STRATA_CHECK_LT(index, kRules.size());
  return *kRules[index];
}

// A recipe with one of these keys is meant for another objective.
void refuse_ineffective_keys(const Recipe::Training& training, models::Objective objective) {
  using models::Objective;
  if (training.mlm_probability && objective != Objective::masked_lm)
    fail(Exit::usage,
         "training.mlm_probability = {} is the share of tokens that masked_lm predicts, but training.objective is "
         "\"{}\": leave it out, or use masked_lm",
         *training.mlm_probability, models::name_of(objective));
  if (!training.class_weights.empty() && (objective == Objective::causal_lm || objective == Objective::masked_lm))
    fail(Exit::usage,
         "training.class_weights weigh classes, but training.objective is \"{}\": leave them out, or use "
         "sequence_classification or token_classification",
         models::name_of(objective));
}

// The labelled rows of the validation data, if the run evaluates (otherwise null). Only classification has any.
std::uint64_t scored_rows(const Workload& workload, const Sequences* validation) {
  using models::Objective;
  const Recipe& recipe = workload.recipe;
  const Objective objective = workload.objective().value();
  if (objective != Objective::sequence_classification && objective != Objective::token_classification) return 0;
  if (validation == nullptr) return 0;
  std::uint64_t rows = 0;
  if (const LabelColumn* labels = validation->column()) {
    constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 20;
    for (std::uint64_t at = 0; at < labels->size(); at += kAtOnce)
      rows += labels->counting(at, std::min(kAtOnce, labels->size() - at));
  } else {
    // Data to be predicted have no labels.
    for (const TokenFile& file : validation->files())
      rows +=
          objective == Objective::token_classification ? file.sidecar()->mask->count : file.sidecar()->documents->count;
  }
  const std::uint64_t of_sequence = workload.data.validation_loss_rows > 0
                                        ? workload.data.validation_loss_rows
                                        : static_cast<std::uint64_t>(recipe.data.seq_len);
  const std::uint64_t sequences = max_validation_sequences(recipe);
  return sequences < rows / of_sequence + 1 ? std::min(rows, sequences * of_sequence) : rows;
}

// A "BertModel" trained on masked words becomes "BertForMaskedLM" in checkpoints and exports.
void name_architecture(Workload& workload) {
  const models::Config config = workload.config();
  const std::string name = models::architecture_of(config, workload.objective().value());
  if (config.has("architectures") && config.texts("architectures") != std::vector{name})
    workload.resolved.config["architectures"] = fmt::format("[{}]", json_string(name));
}

// The properties that determine a classifier's metrics, in addition to its objective.
std::string_view predictions_text(models::Objective objective, PredictionKind predictions) {
  switch (predictions) {
    case PredictionKind::tokens:
      return "";
    case PredictionKind::number:
      return " and a regression";
    case PredictionKind::many_classes:
      return " and several classes per text";
    case PredictionKind::one_class:
      return objective == models::Objective::token_classification
                 ? " and classes that are not all named O, B-TYPE and I-TYPE"
                 : " and one class per text";
    case PredictionKind::entities:
      return " and classes named O, B-TYPE and I-TYPE";
  }
  return "";
}

// The first data file with labels, and the objective that is trained on them.
struct LabelledFile {
  std::filesystem::path path;
  models::Objective learned_by;
};
std::optional<LabelledFile> labelled_file(const Recipe::Data& data) {
  for (const auto& path : data_files(data)) {
    const auto sidecar = read_sidecar(path);
    if (!sidecar || !sidecar->labels) continue;
    return LabelledFile{path, sidecar->labels->problem == "token_classification"
                                  ? models::Objective::token_classification
                                  : models::Objective::sequence_classification};
  }
  return std::nullopt;
}

// Called if the model names the objective and the recipe does not: a user with labelled data means to train on the
// labels.
void require_labels_learned(const Recipe& recipe, models::Objective objective) {
  if (objective == models::Objective::sequence_classification || objective == models::Objective::token_classification)
    return;
  if (const auto file = labelled_file(recipe.data))
    fail(Exit::usage,
         "{} has labels, but the recipe has no training.objective, and this model's own, \"{}\", does not use them: "
         "set training.objective = \"{}\" to train a classifier, or \"{}\" to ignore the labels",
         file->path.string(), models::name_of(objective), models::name_of(file->learned_by),
         models::name_of(objective));
}

// Losses and metrics of truncated or dropped texts differ from those of complete texts.
void note_long_documents(const Sequences& validation, Workload& workload) {
  const PackingFigures* figures = validation.packing();
  if (figures == nullptr || figures->cut + figures->dropped == 0) return;
  workload.data.notes.push_back(
      fmt::format("evaluations {} {} of {} of data.validation, which {} above data.seq_len = {} (data.long = \"{}\")",
                  figures->cut > 0 ? "cut" : "leave out", figures->cut + figures->dropped,
                  counted(figures->documents, "document"), for_count(figures->cut + figures->dropped, "is", "are"),
                  workload.recipe.data.seq_len, figures->cut > 0 ? "cut" : "drop"));
}

}  // namespace

MakeLabelling labelling_of(const Workload& workload) {
  const ObjectiveRules& rules = rules_of(workload.objective().value());
  if (!rules.labelling) return {};
  return [&workload, &rules](std::span<const TokenFile> files, std::uint64_t stream) {
    return rules.labelling(workload, files, stream);
  };
}

bool generates(models::Objective objective) {
  return rules_of(objective).generates;
}

void look_for_labels(Workload& workload, const LabelColumn*) {
  const auto file = labelled_file(workload.recipe.data);
  if (!file) return;
  workload.data.notes.push_back(fmt::format(
      "ignoring the labels in {}: training.objective is \"{}\"; to train a classifier, set it to \"{}\"",
      file->path.string(), models::name_of(workload.objective().value()), models::name_of(file->learned_by)));
}

void resolve_objective(Workload& workload) {
  const Recipe& recipe = workload.recipe;
  if (!workload.objective()) {
    workload.resolved.objective = models::objective_of(workload.config());
    require_labels_learned(recipe, *workload.resolved.objective);
  }
  const models::Objective objective = *workload.objective();
  refuse_ineffective_keys(recipe.training, objective);
  resolve_classes(workload);  // reads the model's own architecture, so it comes first
  name_architecture(workload);
  const auto seq_len = static_cast<std::uint32_t>(recipe.data.seq_len);
  const auto rows = rules_of(objective).loss_rows(recipe, seq_len);
  workload.data.loss_rows = workload.data.validation_loss_rows = rows.value_or(0);
}

OpenedData resolve_workload(Workload& workload, bool evaluates) {
  resolve_objective(workload);
  const Recipe& recipe = workload.recipe;
  const models::Objective objective = *workload.objective();
  const ObjectiveRules& rules = rules_of(objective);
  const PredictionKind predictions = rules.predictions(workload);
  if (recipe.evaluation.asked() && !metric_named(recipe.evaluation.metric).is_of(predictions))
    fail(Exit::usage, "evaluation.metric = \"{}\" is not available with training.objective = \"{}\"{}: use one of {}",
         recipe.evaluation.metric, models::name_of(objective), predictions_text(objective, predictions),
         fmt::join(metric_names(predictions), ", "));
  if (rules.of_documents && workload.packing() == Packing::automatic && names_documents(recipe.data))
    workload.data.packing = Packing::documents;
  OpenedData opened = resolve_data(recipe, workload.data, evaluates, labelling_of(workload));
  workload.data.scored_rows = scored_rows(workload, opened.validation.get());
  if (opened.validation) note_long_documents(*opened.validation, workload);
  if (!evaluates) rules.look(workload, opened.validation ? opened.validation->column() : nullptr);
  return opened;
}

}  // namespace strata::runtime
