#include <fmt/format.h>
#include <simdjson.h>
#include <stdlib.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/abort.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/host/host.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "comm/communicator.h"
#include "launcher/launch/ranks/attempt.h"
#include "launcher/launch/ranks/child.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/bench/bench_lane.h"
#include "launcher/measure/memory/memory.h"
#include "launcher/outputs.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "models/classes.h"
#include "offload/swap.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/capacity.h"
#include "runtime/job/make_job.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
using runtime::Recipe;
using simdjson::dom::element;

// A folder that the destructor removes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "strata-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      fail(Exit::failed, "no folder can be created in {}", fs::temp_directory_path().string());
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs a recipe in a separate process, so that each run starts from the same state.
class Runs {
 public:
  Runs(const fs::path& folder, MemoryOf of) : folder_(folder), of_(of) {}

  // Sets the row's result, or its failure.
  void run(const Recipe& recipe, MemoryRow& row) {
    const fs::path file = folder_ / "run.toml", steps = folder_ / "steps.jsonl", summary = folder_ / "summary.json";
    AtomicFile written(file);
    written.write(runtime::to_toml(recipe));
    written.commit();
    std::vector<std::string> words = {own_program().string(), "train", file.string()};
    for (const std::string& set : {"report.jsonl=" + steps.string(), "report.summary=" + summary.string()})
      words.insert(words.end(), {"--set", set});
    for (const auto& [key, json] : recipe.model.config)  // TOML has no null
      if (json == "null") words.insert(words.end(), {"--set", fmt::format("model.config.{}=null", key)});
    std::string last;
    const auto take = [&](std::string_view line) { last = line; };
    Child child({words, {"STRATA_PROGRESS=lines"}}, take, take);
    while (!child.is_over()) {
      LineReader* readers[] = {&child.out(), &child.errors()};
      read_lines(readers, 50);
      if (stop_.count() > 0) fail(Exit::failed, "stopped on request: the table ends here");
    }
    if (const int code = child.exit_code().value_or(1); code != 0)
      row.failure = last.empty() ? fmt::format("ended with exit code {}", code) : last;
    else
      row.result = read(steps, summary);
  }

 private:
  MemoryResult read(const fs::path& steps, const fs::path& summary) {
    simdjson::dom::parser parser;
    MemoryResult out{};
    std::string losses;
    double tokens = 0;
    for (const element line : parser.load_many(steps.string())) {
      losses += std::string_view(line["loss_hex"]);
      losses += '\n';
      out.loss = line["loss"];
      tokens = line["tokens"];
    }
    const element s = parser.load(summary.string());
    losses += std::string_view(s["weights_hash"]);
    out.bits = fmt::format("{:016x}", XXH3_64bits(losses.data(), losses.size()));
    for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
      out.measured[tier] = s["memory"][runtime::kTierNames[tier]]["measured_peak_bytes"];
    out.step_ms = tokens / double(s["tokens_per_s"]) * 1e3;
    element gpu;
    if (of_ == MemoryOf::gpu && s["gpu_memory"].get(gpu) == simdjson::SUCCESS)
      out.process = std::uint64_t(gpu["free_before_bytes"]) - std::uint64_t(gpu["free_at_end_bytes"]);
    else
      out.process = s["process_peak_rss_bytes"].at(0);
    return out;
  }

  const fs::path& folder_;
  MemoryOf of_;
  StopSignalCounter stop_;
};

// The labels that documents need for this objective.
RandomLabels labels_for(const runtime::Job& job) {
  const models::Objective objective = job.model->objective;
  const bool per_token = objective == models::Objective::token_classification;
  if (objective != models::Objective::sequence_classification && !per_token) return {};
  models::Classes classes = models::read_classes(job.config(), objective);
  const bool number = classes.target == device::ClassTarget::number, many = classes.target == device::ClassTarget::many;
  return {per_token ? "token_classification"
          : number  ? "regression"
          : many    ? "multi_label_classification"
                    : "single_label_classification",
          number ? std::vector<std::string>{} : std::move(classes.names)};
}

// The recipe, if it has data; otherwise with random documents, which are written to `folder`, enough for all steps.
Recipe with_documents(Recipe recipe, const runtime::Job& job, std::int64_t batch, int steps, const fs::path& folder) {
  if (!recipe.data.train.empty()) return recipe;
  const fs::path file = folder / "random.bin";
  // Rows into which shorter documents are packed stay partly empty, so write more than needed. Sequences that are left
  // over are not read.
  const auto sequences = static_cast<std::uint64_t>(2 * batch * std::min(steps, 64));
  write_random_documents(file, static_cast<std::int64_t>(job.model->vocabulary), recipe.data.seq_len,
                         sequences * static_cast<std::uint64_t>(recipe.data.seq_len), labels_for(job));
  recipe.data.train = {{{file.string()}, 1}};
  recipe.data.any_tokenizer = true;
  say("the recipe names no data.train: random documents of {} to {} tokens are used instead",
      std::max<std::int64_t>(recipe.data.seq_len / 8, 1), recipe.data.seq_len);
  return recipe;
}

std::string title_of(const runtime::Job& job, std::int64_t batch) {
  const Recipe::Model& model = job.recipe.model;
  const std::string name = model.preset ? *model.preset : job.model_path()->filename().string();
  return fmt::format("{} ({} parameters): {} x {} tokens per step", name, count_text(job.model->parameters()), batch,
                     job.recipe.data.seq_len);
}

// Checks the drives once, instead of in every run that uses them. Throws the error of a run for a folder that cannot
// hold a swap file.
void require_drives(const std::vector<fs::path>& folders) {
  const AbortToken abort;
  offload::IoOptions options;
  options.folders = folders;
  const offload::Swap swap(options, offload::kBlock, 0, abort);
}

void write_chart(const fs::path& path, const std::string& svg) {
  AtomicFile file(path);
  file.write(svg);
  file.commit();
}

}  // namespace

int bench_memory(const BenchOptions& options) {
  if (comm::launched_ranks() > 1)
    fail(Exit::usage, "bench memory starts its runs itself, on one rank: start it without mpirun");
  if (options.steps < 3)
    fail(Exit::usage, "--steps {}: bench memory takes 3 or more, because the first two are not measured",
         options.steps);
  const Recipe recipe = runtime::load_recipe(options.recipe, options.sets);
  std::vector<NamedFile> outputs;
  if (options.json) outputs.push_back({"--json", *options.json});
  if (options.svg) outputs.push_back({"--svg", *options.svg});
  require_apart(outputs, inputs_of(recipe, options.recipe));
  require_outside_checkpoints(outputs, recipe);
  if (options.svg) require_own({"--svg", *options.svg}, Content::chart, options.force);
  if (recipe.training.micro_batch_size == runtime::kAutomaticBatch)
    fail(Exit::usage,
         "bench memory compares batches of one size: give training.global_batch_size, and a number for "
         "training.micro_batch_size");
  const std::int64_t batch = batch_of(recipe);
  const bool has_drive = !recipe.memory.nvme.empty();
  const auto settings = memory_settings(options.only, has_drive);
  for (const MemorySetting& setting : settings) (void)recipe_with(recipe, setting, batch, options.steps);  // refuses
  if (std::any_of(settings.begin(), settings.end(),
                  [](const MemorySetting& setting) { return setting.optimizer == runtime::Tier::nvme; }))
    require_drives(recipe.memory.nvme);
  if (!has_drive) note("nothing is run with the optimizer on NVMe: memory.nvme names no folder on a drive");
  if (!recipe.training.global_batch_size && recipe.accumulation_steps(1) * recipe.training.micro_batch_size < batch)
    say("a step has {} (set training.global_batch_size for another number)", counted(batch, "sequence"));

  const runtime::RankDevice rank_device = runtime::choose_rank_device(recipe.device.kind, 0);
  const runtime::Capacity capacity = runtime::capacity_here(recipe.memory, 1, rank_device);
  const MemoryOf of = rank_device.device.kind == device::Kind::cpu ? MemoryOf::cpu : MemoryOf::gpu;
  const TemporaryFolder folder;
  std::vector<MemoryRow> rows;
  std::vector<Recipe> recipes;
  std::string title;
  const std::string device = runtime::describe(rank_device);
  runtime::Workload workload = runtime::open_workload(recipe);
  for (const MemorySetting& setting : settings) {
    if (recipes.empty()) {
      const runtime::Job job =
          runtime::make_job(workload.with(recipe_with(recipe, setting, batch, options.steps)), 1, capacity);
      workload = workload.with(with_documents(recipe, job, batch, options.steps, folder.path()));
      // The data's classes come from the configuration (labels_for); every run finds them again.
      runtime::resolve_workload(workload, false);
      workload.resolved.config.clear();
      title = title_of(job, batch);
    }
    recipes.push_back(recipe_with(workload.recipe, setting, batch, options.steps));
    const runtime::Job job = runtime::make_job(workload.with(recipes.back()), 1, capacity);
    MemoryRow& row = rows.emplace_back();  // GCC 14 reports the result of a moved-in row as uninitialized
    row.setting = setting;
    row.planned = job.plan.memory;
    row.fits = runtime::fits(job.plan, capacity);
  }

  fmt::print("{}\n{}\nms per step: median of {}, after two of warm-up; loss of step {}\n\n{}", title, device,
             options.steps - 2, options.steps, memory_header(of));
  const auto all = static_cast<std::uint64_t>(
      std::count_if(rows.begin(), rows.end(), [](const MemoryRow& row) { return row.fits; }));
  std::uint64_t done = 0;
  Runs runs(folder.path(), of);
  Activity activity("settings");
  const auto write = [&] {
    if (options.svg) write_chart(*options.svg, memory_chart(rows, of, title, device));
    write_json(options, JsonObject()
                            .add("title", title)
                            .add("device", device)
                            .add("batch", batch)
                            .add("steps", options.steps)
                            .add("rows", JsonText{memory_rows_json(rows, of)}));
  };
  try {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      activity.show(done, all);
      if (rows[i].fits) runs.run(recipes[i], rows[i]);
      done += rows[i].fits ? 1 : 0;
      activity.clear();
      fmt::print("{}", printable(memory_line(rows[i], of), true));
      std::fflush(stdout);
    }
  } catch (const Error&) {
    write();  // the results so far
    throw;
  }
  fmt::print("\n{}", same_bits_text(rows));
  write();
  const bool failed = std::any_of(rows.begin(), rows.end(), [](const MemoryRow& row) { return !row.failure.empty(); });
  return static_cast<int>(failed || !differing_rows(rows).empty() ? Exit::failed : Exit::done);
}

}  // namespace strata::launcher
