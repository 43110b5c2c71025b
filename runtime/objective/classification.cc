#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/number.h"
#include "device/ops/losses/losses.h"
#include "models/classes.h"
#include "models/files/config.h"
#include "runtime/data/files/labels.h"
#include "runtime/objective/rules.h"

namespace strata::runtime {
namespace {

using models::Objective;

// Families that predict the next token have read the whole text only at its last token.
ClassRow row_of(const models::Config& config) {
  if (!models::predicts_next(config)) return {.last = false};
  const std::int64_t padding = config.int_or("pad_token_id", -1);
  if (padding < 0 || padding > std::numeric_limits<std::uint32_t>::max()) return {.last = true};
  return {.last = true, .padding = static_cast<std::uint32_t>(padding)};
}

// The labels of all files, in order; nullopt if the run predicts them.
std::optional<LabelColumn> labels_of(std::span<const TokenFile> files, const models::Classes& classes, bool per_token) {
  if (classes.target == device::ClassTarget::none) return std::nullopt;
  LabelColumn out = column_for(classes);
  std::uint64_t count = 0;
  for (const TokenFile& file : files)
    if (file.sidecar() && file.sidecar()->labels) count += per_token ? file.count() : file.sidecar()->labels->count;
  out.reserve(count);
  for (const TokenFile& file : files) read_labels(file, classes, per_token, out);
  return out;
}

std::shared_ptr<Labelling> of_documents(const Workload& workload, std::span<const TokenFile> files, std::uint64_t) {
  if (workload.packing() == Packing::stream)
    fail(Exit::usage,
         "data.packing = \"stream\" cuts documents, but a class describes a complete one: use \"documents\"");
  const models::Config config = workload.config();
  const models::Classes classes = models::read_classes(config, Objective::sequence_classification);
  auto labels = labels_of(files, classes, false);
  std::vector<std::uint64_t> documents_before, tokens_before;
  std::uint64_t documents = 0, tokens = 0;
  for (const TokenFile& file : files) {
    documents_before.push_back(documents);
    tokens_before.push_back(tokens);
    documents += labels ? file.sidecar()->labels->count : file.sidecar()->documents->count;
    tokens += file.count();
  }
  return std::make_shared<DocumentClasses>(std::move(labels), std::move(documents_before), std::move(tokens_before),
                                           row_of(config));
}

std::shared_ptr<Labelling> of_tokens(const Workload& workload, std::span<const TokenFile> files, std::uint64_t) {
  const models::Classes classes = models::read_classes(workload.config(), Objective::token_classification);
  return std::make_shared<TokenClasses>(labels_of(files, classes, true));
}

std::optional<std::uint32_t> one_row(const Recipe&, std::uint32_t) {
  return 1;
}
std::optional<std::uint32_t> every_row(const Recipe&, std::uint32_t) {
  return std::nullopt;
}

// The classes in the sidecars of the training data, otherwise of the validation data.
struct DataClasses {
  std::string problem, file;
  std::vector<std::string> names;
  bool vectors = false;  // in all files
  // The same in all files, otherwise empty.
  std::string tokenizer;
  std::optional<std::string> tokenizer_hash;
  std::optional<bool> pairs;
  std::optional<std::pair<std::int64_t, std::string>> length;  // the maximum, and the truncation; 0: any length
};
std::pair<std::int64_t, std::string> length_of(const TokenSidecar::Labels& labels) {
  return {labels.max_length, labels.truncation};
}
std::optional<DataClasses> classes_of_data(const Recipe::Data& data) {
  std::optional<DataClasses> out;
  const auto look = [&](const std::vector<std::string>& patterns, const char* key) {
    for (const auto& path : expand_patterns(patterns, key)) {
      const auto sidecar = read_sidecar(path);
      if (!sidecar || !sidecar->labels)
        fail(Exit::usage,
             "{} has no labels, which classification requires: make it with strata tokenize --labels FIELD",
             path.string());
      if (!out)
        out = DataClasses{sidecar->labels->problem,
                          path.string(),
                          {},
                          sidecar->labels->vectors,
                          sidecar->tokenizer,
                          sidecar->tokenizer_hash,
                          sidecar->labels->pairs,
                          length_of(*sidecar->labels)};
      out->vectors = out->vectors && sidecar->labels->vectors;
      if (out->tokenizer_hash != sidecar->tokenizer_hash) out->tokenizer_hash.reset();
      if (out->pairs != sidecar->labels->pairs) out->pairs.reset();
      if (out->length != length_of(*sidecar->labels)) out->length.reset();
      if (out->problem != sidecar->labels->problem)
        fail(Exit::usage, "{} is for {}, but {} is for {}: train one at a time", out->file, out->problem, path.string(),
             sidecar->labels->problem);
      for (const std::string& name : sidecar->labels->names)
        if (std::find(out->names.begin(), out->names.end(), name) == out->names.end()) out->names.push_back(name);
    }
  };
  for (const DataSource& source : data.train) look(source.files, "data.train");
  if (!out && !data.validation.empty()) look(data.validation, "data.validation");
  return out;
}

// The number of labels of each class.
std::vector<std::uint64_t> labels_of_classes(const LabelColumn& labels, const models::Classes& classes) {
  std::vector<std::uint64_t> out(classes.names.size());
  for (std::uint64_t i = 0; i < labels.size(); ++i) {
    const std::int32_t label = labels[i];
    if (label == device::kIgnoredLabel) continue;
    if (classes.target == device::ClassTarget::one) {
      ++out[static_cast<std::size_t>(label)];
    } else if (labels.sets() != nullptr) {
      for (const std::uint16_t c : labels.sets()->of(label)) ++out[c];
    } else {
      for (std::size_t c = 0; c < out.size(); ++c) out[c] += static_cast<std::uint32_t>(label) >> c & 1;
    }
  }
  return out;
}

// Refuses at the start, not at the first evaluation, a metric that is undefined because data.validation has too few
// kinds of labels.
void look_at_metric(Workload& workload, const LabelColumn* of_validation) {
  const Recipe& recipe = workload.recipe;
  const std::string& metric = recipe.evaluation.metric;
  const bool curve = metric == "eval_roc_auc";
  if (!recipe.evaluation.asked() || (!curve && metric != "eval_pearson")) return;
  const models::Classes classes = models::read_classes(workload.config(), workload.objective().value());
  STRATA_CHECK(of_validation != nullptr);
  const LabelColumn& labels = *of_validation;
  if (!curve) {
    std::uint64_t same = 0;
    while (same < labels.size() && labels[same] == labels[0]) ++same;
    if (same == labels.size())
      fail(Exit::usage,
           "evaluation.metric = \"eval_pearson\", but all labels of data.validation are the same, and a correlation "
           "needs different ones: use eval_loss");
    return;
  }
  const std::uint32_t counting = labels.counting(0, labels.size());
  const std::vector<std::uint64_t> of_class = labels_of_classes(labels, classes);
  const bool one_curve = classes.target == device::ClassTarget::one && classes.names.size() == 2;
  for (std::size_t c = one_curve ? 1 : 0; c < classes.names.size(); ++c)
    if (of_class[c] == 0 || of_class[c] == counting)
      fail(Exit::usage,
           "evaluation.metric = \"eval_roc_auc\", but {} of data.validation belongs to the class {}, and its curve "
           "needs some that belong to it and some that do not: add them, or use another metric",
           of_class[c] == 0 ? "nothing" : "all", classes.names[c]);
}

PredictionKind predictions_of(const Workload& workload) {
  const Objective objective = workload.objective().value();
  const models::Classes classes = models::read_classes(workload.config(), objective);
  if (classes.target == device::ClassTarget::number) return PredictionKind::number;
  if (classes.target == device::ClassTarget::many) return PredictionKind::many_classes;
  const bool words = objective == Objective::token_classification;
  return words && models::are_entity_tags(classes.names) ? PredictionKind::entities : PredictionKind::one_class;
}

// True if the name is the number of a class, alone or in the name of a vector's column: "LABEL_3".
bool is_place(std::string_view name, const models::Classes& classes) {
  if (name.starts_with(models::kNumberedLabel)) name.remove_prefix(models::kNumberedLabel.size());
  const auto number = parse_number<std::size_t>(name);
  return number && *number < classes.names.size();
}

std::string classes_text(std::span<const std::string> names) {
  return fmt::format("{} ({}{})", names.size() == 1 ? "one class" : fmt::format("{} classes", names.size()),
                     fmt::join(names.first(std::min<std::size_t>(names.size(), 8)), ", "),
                     names.size() > 8 ? ", ..." : "");
}

// Data with no label of the model's classes belong to another task.
void require_known(const DataClasses& data, const models::Classes& own, const models::Config& config) {
  const std::span<const std::string> names = data.names;
  const auto known = [&](const std::string& name) {
    return is_place(name, own) || std::ranges::find(own.names, name) != own.names.end();
  };
  // Columns of vectors stand for the model's classes by their places, so their numbers must be equal.
  if (names.empty() || (data.vectors ? names.size() == own.names.size() : std::ranges::any_of(names, known))) return;
  fail(Exit::usage, "{} has {}, but {} has {}: set model.new_head = true to train a layer for the data's classes",
       config.describe("id2label"), classes_text(own.names), data.file, classes_text(names));
}

}  // namespace

constinit const ObjectiveRules kSequenceClassification = {of_documents, one_row,        true,
                                                          false,        predictions_of, look_at_metric};
constinit const ObjectiveRules kTokenClassification = {of_tokens, every_row,      true,
                                                       false,     predictions_of, look_at_metric};

void resolve_classes(Workload& workload) {
  const Recipe& recipe = workload.recipe;
  const Objective objective = workload.objective().value();
  const bool new_head = recipe.model.new_head;
  if (objective != Objective::sequence_classification && objective != Objective::token_classification) {
    if (new_head)
      fail(Exit::usage, "model.new_head = true applies to classifiers, but training.objective is \"{}\": leave it out",
           models::name_of(objective));
    return;
  }
  const models::Config config = workload.config();
  const models::Classes own = models::read_classes(config, objective);
  if (own.target == device::ClassTarget::none) return;
  const auto data = classes_of_data(recipe.data);
  const bool of_numbers =
      (own.target == device::ClassTarget::number && !new_head) || (data && data->problem == "regression");
  if (of_numbers && !recipe.training.class_weights.empty())
    fail(Exit::usage, "training.class_weights weigh classes, but this model predicts a number: leave them out");
  auto& to = workload.resolved.config;
  // "BertModel", "BertForMaskedLM" and "BertForPreTraining" become "BertForSequenceClassification".
  to["architectures"] = JsonArray().add(models::architecture_of(config, objective)).text();
  if (!data) return;
  const bool per_token = data->problem == "token_classification";
  if (per_token != (objective == Objective::token_classification))
    fail(Exit::usage,
         "{} has labels of {}, but training.objective is \"{}\": set it to \"{}\", or give data with labels of {} "
         "(strata tokenize --labels)",
         data->file, per_token ? "words" : "whole texts", models::name_of(objective),
         models::name_of(per_token ? Objective::token_classification : Objective::sequence_classification),
         per_token ? "whole texts" : "words");
  const auto record = [&](const char* what, const std::string& json) {
    to[fmt::format("{}.{}", models::kTrainedOn, what)] = json;
  };
  // null (unknown) replaces the value of an earlier training of the model.
  const bool known = data->tokenizer_hash && !data->tokenizer_hash->empty();
  record("tokenizer", known ? json_string(data->tokenizer) : "null");
  record("tokenizer_hash", known ? json_string(*data->tokenizer_hash) : "null");
  record("pairs", !data->pairs ? "null" : *data->pairs ? "true" : "false");
  const bool cut = data->length && data->length->first > 0;
  record("max_length", cut ? fmt::format("{}", data->length->first) : "null");
  record("truncation", cut ? json_string(data->length->second) : "null");
  if (own.named && !new_head) {
    if (!of_numbers) require_known(*data, own, config);
    return;
  }
  if (new_head && per_token)
    to["problem_type"] = "null";
  else if ((new_head || !config.has("problem_type")) && !per_token)
    to["problem_type"] = json_string(of_numbers ? "regression" : data->problem);
  std::vector<std::string> names = data->names;
  if (of_numbers) names = {"LABEL_0"};
  if (names.size() == 1 && !of_numbers && data->problem != "multi_label_classification")
    fail(Exit::usage, "{} has only one class, {}: a classifier needs at least two", data->file, names[0]);
  const bool has_layer = recipe.model.init == Init::pretrained && (own.counted || config.has("id2label.0")) &&
                         std::ranges::any_of(config.texts("architectures"), [&](const std::string& name) {
                           return name.ends_with(per_token ? "ForTokenClassification" : "ForSequenceClassification");
                         });
  // The data name the model's own classes, all of them or some.
  const bool all_own = std::ranges::all_of(names, [&](const std::string& name) {
    return is_place(name, own) || std::ranges::find(own.names, name) != own.names.end();
  });
  if (has_layer && !new_head && !of_numbers) {
    // The weights contain the model's own layer, whose scores are in the model's order. Names that the data list in
    // another order must not replace this order ("LABEL_10" sorts before "LABEL_2").
    if (all_own && (own.names.size() == names.size() || !own.counted)) return;
    if (!own.counted && own.names.size() != names.size())
      fail(Exit::usage, "{} has {}, but {} has {}: set model.new_head = true to train a layer for the data's classes",
           config.describe("id2label"), classes_text(own.names), data->file, classes_text(names));
  }
  if (new_head) {
    if (config.has("num_labels")) to["num_labels"] = fmt::format("{}", names.size());
  } else if (own.counted && own.names.size() != names.size()) {
    // The data then contain texts of only some of the classes.
    if (!of_numbers && !data->vectors &&
        std::ranges::all_of(names, [&](const std::string& name) { return is_place(name, own); }))
      return;
    if (of_numbers)
      fail(Exit::usage,
           "{} is {}, but the labels of {} are numbers with a decimal point, which means a regression with one output: "
           "leave it out, or write classes without a decimal point (1, not 1.0) and tokenize again",
           config.describe("num_labels"), own.names.size(), data->file);
    fail(Exit::usage, "{} is {}, but {} has {}: leave it out, and the number comes from the data",
         config.describe("num_labels"), own.names.size(), data->file, classes_text(names));
  }
  JsonObject forward(JsonLayout::spaced), backward(JsonLayout::spaced);
  for (std::size_t i = 0; i < names.size(); ++i) {
    forward.add(std::to_string(i), names[i]);
    backward.add(names[i], i);
  }
  to["id2label"] = forward.text();
  to["label2id"] = backward.text();
}

std::size_t ClassRow::of(std::span<const std::uint32_t> tokens) const {
  if (!last) return 0;
  std::size_t row = tokens.size() - 1;
  while (row > 0 && tokens[row] == padding) --row;
  return row;
}

DocumentClasses::DocumentClasses(std::optional<LabelColumn> labels, std::vector<std::uint64_t> documents_before,
                                 std::vector<std::uint64_t> tokens_before, ClassRow row)
    : labels_(std::move(labels)),
      documents_before_(std::move(documents_before)),
      tokens_before_(std::move(tokens_before)),
      row_(row) {}

std::uint32_t DocumentClasses::most(const Piece& piece) const {
  const std::uint64_t first = piece.documents ? piece.documents->begin(piece.document) : piece.begin;
  if (piece.begin != first || piece.begin + piece.rows != piece.document_end)
    fail(Exit::usage,
         "{}: document {} has {} tokens, more than data.seq_len, but its class applies to all of it: tokenize with "
         "--max-length, or use data.long = \"drop\"",
         piece.file.path().string(), piece.document + 1, piece.document_end - first);
  return 1;
}

void DocumentClasses::fill(const Piece& piece, std::uint64_t, const Rows& own) const {
  // The piece's file: the last one that begins at or before its place.
  const auto after = std::upper_bound(tokens_before_.begin(), tokens_before_.end(), piece.place);
  const auto file = static_cast<std::size_t>(after - tokens_before_.begin()) - 1;
  std::fill(own.labels.begin(), own.labels.end(), device::kIgnoredLabel);
  const std::uint64_t number = documents_before_[file] + piece.document;
  own.labels[row_.of(own.tokens)] = labels_ ? (*labels_)[number] : static_cast<std::int32_t>(number);
}

std::uint32_t TokenClasses::most(const Piece& piece) const {
  if (labels_) return labels_->counting(piece.place, piece.rows);
  if (!piece.documents) return piece.rows;
  return static_cast<std::uint32_t>(piece.documents->labels(piece.begin, piece.begin + piece.rows));
}

void TokenClasses::fill(const Piece& piece, std::uint64_t, const Rows& own) const {
  for (std::uint32_t i = 0; i < piece.rows; ++i) {
    if (labels_)
      own.labels[i] = (*labels_)[piece.place + i];
    else
      own.labels[i] =
          piece.counts(piece.begin + i) ? static_cast<std::int32_t>(piece.place + i) : device::kIgnoredLabel;
  }
}

}  // namespace strata::runtime
