#include "launcher/commands/predict/predict.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "comm/exchange_values.h"
#include "device/algorithm_table.h"
#include "device/cpu/isa.h"
#include "launcher/adapter_option.h"
#include "launcher/commands/commands.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/planned_run.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "models/classes.h"
#include "models/model.h"
#include "models/objective.h"
#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/search/algorithms.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/evaluator.h"
#include "runtime/run/metrics/class_metrics.h"
#include "runtime/run/tokenizer_match.h"
#include "text/classes/class_tokenizer.h"
#include "text/tokenizer.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using comm::agree;

std::string line_of(std::span<const float> scores, const models::Classes& classes, double threshold) {
  constexpr JsonLayout kLayout = JsonLayout::spaced;
  JsonObject line(kLayout), probabilities(kLayout);
  JsonArray chosen(kLayout);
  const auto digits = [](double value) { return fmt::format("{:.9g}", value); };
  if (classes.target == device::ClassTarget::number)
    return line.add("label", JsonText{digits(scores[0])}).text() + "\n";
  const bool many = classes.target == device::ClassTarget::many;
  const double most = scores[runtime::best_of(scores)];
  double sum = 0;
  for (const float score : scores) sum += std::exp(score - most);
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const double p = many ? 1 / (1 + std::exp(-static_cast<double>(scores[c]))) : std::exp(scores[c] - most) / sum;
    probabilities.add(classes.names[c], JsonText{digits(p)});
    if (many && p >= threshold) chosen.add(classes.names[c]);
  }
  if (many)
    line.add("labels", chosen);
  else
    line.add("label", classes.names[runtime::best_of(scores)]);
  return line.add("probabilities", probabilities).text() + "\n";
}

runtime::LoadedRecipe recipe_of(const PredictOptions& options, const runtime::ModelFolder& folder,
                                const std::vector<std::string>& head, comm::World& world) {
  std::vector<std::string> sets = {
      "model.path=" + json_string(folder.path().string()),
      "data.validation=" + json_string(fs::absolute(PredictInput::path_of(options.out)).string()),
      "data.packing=documents",
      fmt::format("training.precision={}", options.precision.value_or(std::string(device::name_of(folder.dtype()))))};
  sets.insert(sets.end(), head.begin(), head.end());
  sets.insert(sets.end(), options.sets.begin(), options.sets.end());
  return read_recipe(std::nullopt, sets, world, false);
}

// Checks OUT as far as possible before anything is read.
void require_writable(const PredictOptions& options) {
  require_apart({{"--out", options.out}}, {{"IN", options.input}});
  std::error_code ignored;
  require_place({"--out", options.out}, true);
  require_free_names(PredictPart::path_of(options.out), PredictInput::paths_of(options.out));
  if (!fs::exists(options.out, ignored)) return;
  if (!fs::is_regular_file(options.out, ignored))
    fail(Exit::usage, "--out {} is not a regular file: give another name", options.out.string());
  require_own({"--out", options.out}, Content::prediction, options.force);
}

// A classifier, and the tokens that it reads.
struct Classifier {
  models::Classes classes;
  models::Objective objective{};
  TextLimit limit;

  // `asked`: training.objective, if it is set.
  Classifier(const PredictOptions& options, const runtime::ModelFolder& folder, const models::Config& config,
             std::optional<models::Objective> asked)
      : objective(asked ? *asked : models::objective_of(config)) {
    if (objective != models::Objective::sequence_classification && objective != models::Objective::token_classification)
      fail(Exit::usage, "{} is not a classifier: {}{}{}; train a classifier from it first (training.objective)",
           folder.path().string(),
           models::named_objective(config) ? "it has the head of " : "it names no head, and is trained as ",
           models::name_of(objective),
           options.adapter ? fmt::format(", and {} has no classification head", options.adapter->string()) : "");
    classes = models::read_classes(config, objective);
    // Only the number of positions is used, so the other sizes given here do not matter.
    const auto model = models::make_model(config, {1, 1, device::DType::fp32, 1, /*training=*/false});
    const auto positions = static_cast<std::int64_t>(model->max_positions);
    if (options.max_length.value_or(0) > positions)
      fail(Exit::usage, "--max-length {} is above the {} positions of {}: give at most that many", *options.max_length,
           positions, folder.path().string());
    resolve_limit(options, config, positions);
    const std::string pairs = fmt::format("{}.pairs", models::kTrainedOn);
    if (!config.has(pairs)) return;
    if (config.bool_or(pairs, false) && !options.pair)
      fail(Exit::usage, "{} was trained on pairs of texts: name the field of the second one with --pair",
           folder.path().string());
    if (!config.bool_or(pairs, false) && options.pair)
      fail(Exit::usage, "{} was trained on single texts: leave --pair out", folder.path().string());
  }

 private:
  // Texts are cut as in training, unless the options say otherwise.
  void resolve_limit(const PredictOptions& options, const models::Config& config, std::int64_t positions) {
    constexpr std::int64_t kOtherwise = 512;
    const std::string length = fmt::format("{}.max_length", models::kTrainedOn);
    const std::int64_t in_training = config.has(length) ? config.require_int(length) : kOtherwise;
    limit.tokens = static_cast<std::size_t>(options.max_length.value_or(std::min(in_training, positions)));
    const std::string key = fmt::format("{}.truncation", models::kTrainedOn);
    const std::string name = options.truncation.value_or(config.text_or(key, "longest_first"));
    const auto truncation = text::truncation(name);
    if (!truncation)
      fail(Exit::usage, "{} is \"{}\", which is not a strategy: give --truncation", config.describe(key), name);
    text::require_possible(*truncation, options.pair.has_value());
    limit.truncation = *truncation;
  }
};

// The tokenizer for the texts, on rank 0.
std::unique_ptr<text::Tokenizer> tokenizer_of(const PredictOptions& options, const runtime::ModelFolder& folder,
                                              const models::Config& config, bool any) {
  const auto own_folder = folder.hugging_face();
  const std::string name = config.text_or(fmt::format("{}.tokenizer", models::kTrainedOn), "");
  if (!options.tokenizer && !own_folder)
    fail(Exit::usage, "{} has no tokenizer: name the one of its training data with --tokenizer{}",
         folder.path().string(), name.empty() ? "" : fmt::format(" (it was {})", name));
  const fs::path where = options.tokenizer ? *options.tokenizer : *own_folder;
  std::unique_ptr<text::Tokenizer> tokenizer;
  try {
    tokenizer = text::load_tokenizer(where);
  } catch (const Error& error) {
    if (options.tokenizer || error.code() != Exit::usage) throw;
    fail(Exit::usage, "{}: name the tokenizer of the training data with --tokenizer (byte, or a folder)", error.what());
  }
  print_notes(tokenizer->notes(), where.string());
  if (!any) runtime::require_tokenizer_of_classifier(folder, config, *tokenizer, where);
  if (const std::int64_t words = config.require_int("vocab_size"); tokenizer->vocab_size() > words)
    fail(Exit::usage, "the tokenizer {} has {} tokens, but {} has {}: name the tokenizer of its training data",
         where.string(), tokenizer->vocab_size(), folder.path().string(), words);
  return tokenizer;
}

// A hash of everything except the texts that results depend on: the model's present weights (the path may hold another
// model later), the recipe's keys for mathematics and batches, and the algorithms of products.
std::string fingerprint_of(const runtime::Job& job, const runtime::WeightSource& weights,
                           const device::AlgorithmTable* algorithms) {
  std::string all = job.config().to_json();
  for (const comm::FileFingerprint& one : weights.fingerprints()) all += "\n" + one.name + " " + one.fingerprint;
  std::istringstream lines(runtime::to_text(job.complete_recipe()));
  for (std::string line; std::getline(lines, line);)
    for (const char* section : {"model.", "data.", "training.", "device.kind"})
      if (line.starts_with(section)) all += "\n" + line;
  if (job.plan.device.kind == device::Kind::cpu)
    all += fmt::format("\ncpu {} {} {}", static_cast<int>(device::cpu::isa()), device::cpu::native_bf16(),
                       device::cpu::describe_libraries());
  else
    all += fmt::format("\n{} {:016x}", device::algorithm_machine(job.plan.device), algorithms ? algorithms->hash() : 0);
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

// Names the text whose row has this number, in a sentence that is the same on every rank.
std::string not_finite(std::int32_t number, models::Objective objective, const fs::path& tokens) {
  auto text = static_cast<std::uint64_t>(number);
  if (objective == models::Objective::token_classification) {
    const runtime::TokenFile file(tokens, std::nullopt);
    const runtime::Documents documents(file);
    std::uint64_t i = 0;
    while (documents.begin(i + 1) <= text) ++i;
    text = i;
  }
  return fmt::format(
      "the scores of text {} are not finite: try --precision fp32, and look at the weights with "
      "strata inspect",
      text + 1);
}

// Writes one line per text: the label of each of its words, null for words without tokens.
void write_words(PredictPart& part, const PredictInput& input, const fs::path& tokens, const models::Classes& classes,
                 AtomicFile& out) {
  const runtime::TokenFile file(tokens, std::nullopt);
  const runtime::Documents documents(file);
  STRATA_CHECK_EQ(part.rows(), input.words_with_token());
  std::uint64_t text = 0, number = 0;
  std::uint32_t word = 0;
  std::vector<std::optional<std::string>> labels;
  const auto begin_text = [&] {
    word = 0;
    if (text < documents.count()) labels.assign(input.words()[text], std::nullopt);
  };
  const auto end_text = [&] {
    const JsonArray all = JsonArray(JsonLayout::spaced).add_all(labels);
    out.write(JsonObject(JsonLayout::spaced).add("labels", all).text() + "\n");
    ++text;
    begin_text();
  };
  begin_text();
  auto skip = input.skips().begin();
  part.each_row([&](std::int64_t token, std::span<const float> scores) {
    while (static_cast<std::uint64_t>(token) >= documents.begin(text + 1)) end_text();
    if (skip != input.skips().end() && skip->number == number) word = skip++->word;
    ++number;
    labels[word++] = classes.names[runtime::best_of(scores)];
  });
  while (text < documents.count()) end_text();
}

// The texts of IN.
struct Texts {
  std::unique_ptr<PredictInput> input;  // only on rank 0
  std::size_t least = 1;                // the fewest tokens that a text can have
};

// Tokenizes the texts on rank 0. Collective.
Texts read_texts(const PredictOptions& options, const runtime::ModelFolder& folder, const models::Config& description,
                 bool any_tokenizer, const Classifier& classifier, const StopSignal& stop, comm::World& world) {
  const bool words = classifier.objective == models::Objective::token_classification;
  Texts texts;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const auto tokenizer = tokenizer_of(options, folder, models::Config(description), any_tokenizer);
    const text::TextTemplate& made = tokenizer->text_template();
    // An empty text has only the template's tokens.
    texts.least = std::max<std::size_t>(1, text::TextTemplate::added(options.pair ? made.pair : made.single));
    std::error_code error;
    if (const fs::path to = options.out.parent_path(); !to.empty() && !fs::is_directory(to, error)) {
      fs::create_directories(to, error);
      if (error)
        fail(Exit::failed, "--out {}: {} cannot be made: {}", options.out.string(), to.string(), error.message());
    }
    texts.input = std::make_unique<PredictInput>(options, *tokenizer, classifier.limit, words, stop);
  });
  if (const PredictInput* input = texts.input.get(); input && input->cut() > 0)
    note(fmt::format("{} of {} texts {} truncated to {} tokens{}", input->cut(), input->texts(),
                     input->cut() == 1 ? "was" : "were", classifier.limit.tokens,
                     words ? ": words that were cut off have the label null" : ""));
  texts.least = comm::exchange_value(world, texts.least)[0];
  return texts;
}

// Predicts the micro-batches that OUT.part lacks. Throws AgreedError{requeue} if a rank is asked to stop. Collective.
void predict_rest(const PredictOptions& options, const Classifier& classifier, runtime::Evaluator& evaluator,
                  PredictPart& part, const StopSignal& stop, comm::World& world) {
  const bool prints = world.rank() == 0;
  std::uint64_t first = 0;
  agree(world, [&] {
    if (prints) first = part.open();
  });
  first = comm::exchange_value(world, first)[0];
  if (first > 0 && prints) say("resumes after {} of {} micro-batches", first, evaluator.micro_batches());
  bool stopped = false;
  Activity activity("predicting micro-batches", Activity::Unit::count, prints);
  evaluator.predict(
      first, [&](std::span<const std::int32_t> labels, std::span<const float> scores, std::uint64_t done) {
        if (const auto row = row_not_finite(scores, classifier.classes.names.size()))
          throw comm::AgreedError(Exit::failed,
                                  not_finite(labels[*row], classifier.objective, PredictInput::path_of(options.out)));
        stopped = any_rank_stops(stop, world);
        if (!prints) return !stopped;
        part.add(done, labels, scores);
        activity.show(done, evaluator.micro_batches());
        return !stopped;
      });
  activity.clear();
  if (stopped)
    throw comm::AgreedError(Exit::requeue,
                            fmt::format("stopped on request: finished results are in {}.part; run the same "
                                        "command to resume",
                                        options.out.string()));
}

// Writes OUT, and removes OUT.part.
void write_results(const PredictOptions& options, const Classifier& classifier, const PredictInput& input,
                   PredictPart& part) {
  AtomicFile out(options.out);
  if (classifier.objective == models::Objective::sequence_classification)
    part.each_row([&](std::int64_t, std::span<const float> scores) {
      out.write(line_of(scores, classifier.classes, options.threshold));
    });
  else
    write_words(part, input, PredictInput::path_of(options.out), classifier.classes, out);
  out.commit();
  part.remove();
  say("{}: {}", options.out.string(), counted(input.texts(), "text"));
}

void run(PredictOptions options, comm::World& world, const StopSignal& stop) {
  const bool prints = world.rank() == 0;
  take_base_of(options.model, options.adapter, options.sets, world);
  agree(world, [&] { require_writable(options); });
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  const auto folder = runtime::agree_on_model(options.model, share.cores, world, note);
  std::optional<Classifier> classifier;
  models::Config description;
  const runtime::Recipe asked = recipe_of(options, folder, {}, world).recipe;
  std::vector<std::string> keys;
  agree(world, [&] {
    if (!asked.adapter.path || asked.training.objective) return;
    keys = runtime::keys_of_head(runtime::Workload{asked, folder.config()}.config(), *asked.adapter.path);
  });
  const runtime::Recipe with_head = keys.empty() ? asked : recipe_of(options, folder, keys, world).recipe;
  agree(world, [&] {
    description = runtime::Workload{with_head, folder.config()}.config();
    // A copy, because Config remembers which keys were read.
    classifier.emplace(options, folder, models::Config(description), with_head.training.objective);
  });
  const auto& [classes, objective, limit] = *classifier;
  const fs::path tokens_path = PredictInput::path_of(options.out);
  keys.insert(keys.end(), {"model.config.problem_type=" + json_string(models::kPrediction),
                           fmt::format("training.objective={}", models::name_of(objective)),
                           fmt::format("data.seq_len={}", limit.tokens)});
  const runtime::LoadedRecipe loaded = recipe_of(options, folder, keys, world);
  const runtime::Recipe& recipe = loaded.recipe;
  if (options.adapter) agree(world, [&] { require_sole_adapter(*options.adapter, loaded); });
  if (recipe.evaluation.max_sequences)
    throw comm::AgreedError(
        Exit::usage, "evaluation.max_sequences has no effect on predictions, which cover every text: leave it out");
  const Texts texts = read_texts(options, folder, description, recipe.data.any_tokenizer, *classifier, stop, world);
  runtime::Recipe checked = recipe;
  checked.data.any_tokenizer = true;  // it was checked here, and the tokens' sidecar names no folder
  // Rows are a fixed number (as many texts as fit in a sequence), so that products have one shape, whatever the texts.
  const std::uint64_t rows_of_loss =
      objective == models::Objective::token_classification ? 0 : (limit.tokens + texts.least - 1) / texts.least;
  const auto adjust = [&](runtime::Workload& resolved, const runtime::Capacity&) {
    resolved.data.validation_loss_rows = rows_of_loss;
  };
  const int threads = static_cast<int>(recipe.device.threads.value_or(share.cores));
  PlannedRun planned = plan_run(checked, world, {.purpose = runtime::Purpose::evaluate, .adjust = adjust});
  const runtime::Job& job = planned.job;
  if (prints) print_notes(job.notes);
  const std::unique_ptr<runtime::WeightSource> weights = runtime::first_weights(job, world, threads, note);
  // An adapter's checkpoint has the seed of those parameters that its base model lacks.
  if (!weights->initialised().empty() && !folder.has_adapter())
    throw comm::AgreedError(Exit::usage, fmt::format("{} has no {}: train the classifier first", folder.path().string(),
                                                     weights->initialised().front()));
  const auto algorithms = runtime::agree_on_algorithms(job, world, note);
  runtime::Evaluator evaluator(job, world, threads, *weights, algorithms, {}, std::move(planned.data.validation));

  const auto sidecar = runtime::read_sidecar(tokens_path);
  const std::size_t k = classes.names.size();
  const std::string begins = sidecar->documents->hash, types = sidecar->types ? sidecar->types->hash : "none";
  PredictPart part(
      PredictPart::path_of(options.out),
      // Progress is counted in micro-batches, so a run with another micro-batch size must not resume from it.
      fmt::format("{}{} of {} {} {} {} {}", PredictPart::kBegins, fingerprint_of(job, *weights, algorithms.get()),
                  sidecar->hash, begins, types, k, evaluator.micro_batches()),
      k, evaluator.places());
  predict_rest(options, *classifier, evaluator, part, stop, world);
  if (prints) write_results(options, *classifier, *texts.input, part);
}

}  // namespace

int predict(const PredictOptions& options) {
  const StopSignal stop;
  return run_as_rank(std::nullopt, options.sets, [&](comm::World& world) { run(options, world, stop); });
}

}  // namespace strata::launcher
