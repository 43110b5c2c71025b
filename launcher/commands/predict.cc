#include "launcher/commands/predict.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "comm/agreement.h"
#include "launcher/outputs.h"
#include "launcher/rank/agreement.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/screen/activity.h"
#include "launcher/screen/printable.h"
#include "launcher/token_output.h"
#include "models/classes.h"
#include "runtime/checkpoint/model_folder.h"
#include "runtime/job/algorithms.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/value.h"
#include "runtime/run/evaluator.h"
#include "text/classes/class_tokenizer.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using comm::agree;

fs::path with_ending(fs::path path, const char* ending) {
  path += ending;
  return path;
}

text::DocumentInput input_of(const std::string& name) {
  if (name.ends_with(".csv")) return {name, text::InputKind::comma_table};
  if (name.ends_with(".tsv")) return {name, text::InputKind::tab_table};
  if (name.ends_with(".jsonl")) return {name, text::InputKind::lines};
  fail(Exit::usage, "{} is neither .jsonl nor .csv nor .tsv, which texts to predict come in", name);
}

// Rank 0 makes tokens of the input beside OUT, in a file that goes away with this.
class InputTokens {
 public:
  InputTokens(const PredictOptions& options, const text::Tokenizer& tokenizer, std::size_t max_length, bool words)
      : path_(with_ending(options.out, ".tokens")) {
    const text::ClassRules rules{.record = {.text = options.field, .pair = options.pair}, .max_length = max_length};
    const text::DocumentInput input = input_of(options.input);
    text::DocumentReader reader({input}, false, tokenizer);
    text::ClassTokenizer made(tokenizer, rules);
    TokenOutput output(path_, {{"IN", input.name}}, true);
    text::TokenWriter& writer = output.open(tokenizer, std::nullopt, words);
    text::BitFile& types = output.open_types();
    text::DocumentPart part;
    text::ClassTokens tokens;
    while (reader.next(part)) {
      made.run(part, tokens);
      for (std::size_t i = 0; i < tokens.begins.size(); ++i) {
        const std::size_t begin = tokens.begins[i];
        const std::size_t end = i + 1 < tokens.begins.size() ? tokens.begins[i + 1] : tokens.ids.size();
        writer.begin_document();
        const auto ids = std::span(tokens.ids).subspan(begin, end - begin);
        if (words) {
          if (tokens.labels[i].values.empty())
            fail(Exit::usage,
                 "{}, text {}: \"{}\" is one string, and the model gives each word a label: give the words as a list",
                 input.name, writer.documents() + 1, options.field);
          std::vector<std::uint8_t> counts;
          for (const auto& label : tokens.labels[i].values) counts.push_back(label.has_value());
          counts.resize(ids.size());
          writer.add(ids, counts);
        } else {
          writer.add(ids);
        }
        for (std::size_t t = begin; t < end; ++t) types.add(tokens.types[t] != 0, 1);
      }
    }
    output.commit();
  }
  ~InputTokens() {
    std::error_code ignored;
    for (const char* ending : {"", ".json", ".documents", ".mask", ".types"})
      fs::remove(with_ending(path_, ending), ignored);
  }
  InputTokens(const InputTokens&) = delete;
  InputTokens& operator=(const InputTokens&) = delete;

 private:
  fs::path path_;
};

// Scores of rows as they come, in OUT.part: a line that says of what, then of each round how many micro-batches are
// done, how many rows it has, their numbers and scores.
class PartFile {
 public:
  PartFile(fs::path path, std::string of_what, std::size_t classes)
      : path_(std::move(path)), of_what_(std::move(of_what) + "\n"), classes_(classes) {}

  // What an earlier run has done; returns its micro-batches.
  std::uint64_t read(std::map<std::int32_t, std::vector<float>>& rows) {
    std::ifstream in(path_, std::ios::binary);
    std::string all{std::istreambuf_iterator<char>(in), {}};
    std::uint64_t done = 0;
    std::size_t kept = 0;
    if (all.starts_with(of_what_)) {
      kept = of_what_.size();
      for (std::uint64_t head[2]; kept + sizeof head <= all.size();) {
        std::memcpy(head, all.data() + kept, sizeof head);
        const std::size_t of_row = sizeof(std::int32_t) + classes_ * sizeof(float);
        if (head[1] > (all.size() - kept - sizeof head) / of_row) break;
        const char* at = all.data() + kept + sizeof head;
        for (std::uint64_t i = 0; i < head[1]; ++i, at += of_row) {
          std::int32_t row = 0;
          std::memcpy(&row, at, sizeof row);
          auto& scores = rows[row];
          scores.resize(classes_);
          std::memcpy(scores.data(), at + sizeof row, classes_ * sizeof(float));
        }
        kept += sizeof head + head[1] * of_row;
        done = head[0];
      }
    }
    all.resize(kept);
    if (kept == 0) all = of_what_;
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << all;
    out_.open(path_, std::ios::binary | std::ios::app);
    return done;
  }
  void add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores) {
    const std::uint64_t head[2] = {done, rows.size()};
    out_.write(reinterpret_cast<const char*>(head), sizeof head);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      out_.write(reinterpret_cast<const char*>(&rows[i]), sizeof rows[i]);
      out_.write(reinterpret_cast<const char*>(scores.data() + i * classes_),
                 static_cast<std::streamsize>(classes_ * sizeof(float)));
    }
    out_.flush();
    if (!out_) fail(Exit::failed, "{} cannot be written", path_.string());
  }
  void remove() {
    out_.close();
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

 private:
  fs::path path_;
  std::string of_what_;
  std::size_t classes_;
  std::ofstream out_;
};

std::size_t best_of(std::span<const float> scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

std::string line_of(std::span<const float> scores, const models::Classes& classes, double threshold) {
  if (classes.target == device::ClassTarget::number) return fmt::format("{{\"label\": {:.9g}}}\n", scores[0]);
  const bool many = classes.target == device::ClassTarget::many;
  const double most = scores[best_of(scores)];
  double sum = 0;
  for (const float score : scores) sum += std::exp(score - most);
  std::string chosen, list;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const double p = many ? 1 / (1 + std::exp(-static_cast<double>(scores[c]))) : std::exp(scores[c] - most) / sum;
    const std::string name = runtime::json_string(classes.names[c]);
    list += fmt::format("{}{}: {:.9g}", c > 0 ? ", " : "", name, p);
    if (many && p >= threshold) chosen += (chosen.empty() ? "" : ", ") + name;
  }
  if (many) return fmt::format("{{\"labels\": [{}], \"probabilities\": {{{}}}}}\n", chosen, list);
  return fmt::format("{{\"label\": {}, \"probabilities\": {{{}}}}}\n",
                     runtime::json_string(classes.names[best_of(scores)]), list);
}

runtime::Recipe recipe_of(const PredictOptions& options, const runtime::ModelFolder& folder,
                          models::Objective objective, std::size_t seq_len, comm::World& world) {
  std::vector<std::string> sets = {
      "model.path=" + runtime::json_string(folder.path().string()),
      "model.config.problem_type=" + runtime::json_string(models::kPrediction),
      fmt::format("training.objective={}", models::name_of(objective)),
      "data.validation=" + runtime::json_string(fs::absolute(with_ending(options.out, ".tokens")).string()),
      fmt::format("data.seq_len={}", seq_len),
      "data.packing=documents",
      "data.any_tokenizer=true",
      fmt::format("training.precision={}", options.precision.value_or(std::string(device::name_of(folder.dtype()))))};
  sets.insert(sets.end(), options.sets.begin(), options.sets.end());
  return read_recipe(std::nullopt, sets, world, false);
}

void run(const PredictOptions& options, comm::World& world, const StopSignal& stop) {
  const bool speaks = world.rank() == 0;
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  const auto folder = runtime::agree_on_model(options.model, share.cores, world, note);
  std::optional<InputTokens> tokens;
  models::Classes classes;
  models::Objective objective{};
  std::size_t seq_len = 0;
  const fs::path tokens_path = with_ending(options.out, ".tokens");
  agree(world, [&] {
    require_apart({{"--out", options.out}}, {{"IN", options.input}});
    std::error_code ignored;
    if (!options.force && fs::exists(options.out, ignored) && fs::file_size(options.out, ignored) > 0)
      fail(Exit::usage, "--out {} exists: give another name, or --force to overwrite it", options.out.string());
    const models::Config config = folder.config();
    objective = models::objective_of(config);
    if (objective != models::Objective::sequence_classification && objective != models::Objective::token_classification)
      fail(Exit::usage, "{} is no classifier: its architectures name {}", folder.path().string(),
           models::name_of(objective));
    classes = models::read_classes(config, objective);
    const auto positions =
        static_cast<std::size_t>(config.int_or("max_position_embeddings", config.int_or("n_positions", 512)));
    const std::size_t room = config.require_text("model_type").ends_with("roberta") ? positions - 2 : positions;
    seq_len = options.max_length ? static_cast<std::size_t>(*options.max_length) : std::min<std::size_t>(512, room);
    if (!speaks) return;
    const auto beside = folder.hugging_face();
    if (!options.tokenizer && !beside)
      fail(Exit::usage, "{} names no tokenizer: give --tokenizer", folder.path().string());
    const auto tokenizer = text::load_tokenizer(options.tokenizer ? *options.tokenizer : *beside);
    tokens.emplace(options, *tokenizer, seq_len, objective == models::Objective::token_classification);
  });
  runtime::Recipe recipe = recipe_of(options, folder, objective, seq_len, world);
  agree(world, [&] { runtime::settle(recipe, true); });
  // So that products have one shape, whatever the texts: a text has two tokens at least, or is one of few.
  recipe.data.validation_loss_rows = std::max<std::uint64_t>(recipe.data.validation_loss_rows, (seq_len + 1) / 2);
  if (objective == models::Objective::token_classification) recipe.data.validation_loss_rows = 0;
  const runtime::Seat seat = agree_on_seat(recipe, world);
  const int threads = static_cast<int>(recipe.device.threads.value_or(share.cores));
  const runtime::Job job = plan_job(recipe, agree_on_capacity(recipe, seat, world), world, runtime::Purpose::evaluate);
  require_same_plan(job, world);
  std::unique_ptr<runtime::WeightSource> weights;
  agree(world, [&] { weights = folder.weights(*job.model); });
  if (!weights->drawn().empty())
    throw comm::AgreedError(Exit::usage, fmt::format("{} has no {}: train the classifier first", folder.path().string(),
                                                     weights->drawn().front()));
  runtime::Evaluator evaluator(job, world, threads, *weights, runtime::agree_on_algorithms(job, world, note));

  const auto sidecar = runtime::read_sidecar(tokens_path);
  const std::size_t k = classes.names.size();
  PartFile part(with_ending(options.out, ".part"),
                // What is done is counted in micro-batches, so that those of another size do not go on from it.
                fmt::format("strata predict {} {} {} {} {} {} of {}", folder.path().string(), sidecar->hash, seq_len, k,
                            device::name_of(job.recipe.training.precision), job.recipe.training.micro_batch_size,
                            evaluator.micro_batches()),
                k);
  std::map<std::int32_t, std::vector<float>> rows;
  std::uint64_t first = 0;
  agree(world, [&] {
    if (speaks) first = part.read(rows);
  });
  first = std::stoull(world.exchange(std::to_string(first))[0]);
  if (first > 0 && speaks) say("resumes behind {} of {} micro-batches", first, evaluator.micro_batches());
  Activity activity("predicting micro-batches", Activity::Unit::count, speaks);
  evaluator.predict(first,
                    [&](std::span<const std::int32_t> labels, std::span<const float> scores, std::uint64_t done) {
                      if (stop.requested())
                        fail(Exit::failed, "stopped on request: the same command goes on from here");
                      if (!speaks) return true;
                      for (std::size_t i = 0; i < labels.size(); ++i) {
                        const auto of_row = scores.subspan(i * k, k);
                        rows[labels[i]].assign(of_row.begin(), of_row.end());
                      }
                      part.add(done, labels, scores);
                      activity.show(done, evaluator.micro_batches());
                      return true;
                    });
  if (!speaks) return;
  AtomicFile out(options.out);
  if (objective == models::Objective::sequence_classification) {
    for (const auto& [document, scores] : rows) out.write(line_of(scores, classes, options.threshold));
  } else {
    const runtime::TokenFile file(tokens_path, std::nullopt);
    const runtime::Documents documents(file);
    auto row = rows.begin();
    for (std::uint64_t i = 0; i < documents.count(); ++i) {
      std::string list;
      for (; row != rows.end() && static_cast<std::uint64_t>(row->first) < documents.begin(i + 1); ++row)
        list += (list.empty() ? "" : ", ") + runtime::json_string(classes.names[best_of(row->second)]);
      out.write("{\"labels\": [" + list + "]}\n");
    }
  }
  out.commit();
  part.remove();
}

}  // namespace

int predict(const PredictOptions& options) {
  const StopSignal stop;
  return run_as_rank(std::nullopt, options.sets, [&](comm::World& world) { run(options, world, stop); });
}

}  // namespace strata::launcher
