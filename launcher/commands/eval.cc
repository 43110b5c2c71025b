#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "launcher/adapter_option.h"
#include "launcher/commands/commands.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/planned_run.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "launcher/screen/run_text.h"
#include "runtime/job/search/algorithms.h"
#include "runtime/run/evaluator.h"
#include "runtime/run/reports/report.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;

// Adds a classifier's results in machine-readable form: its metrics, each class, and the confusion matrix.
void add_classes(JsonObject& out, const runtime::ClassReport& report, std::span<const std::string> names) {
  for (const auto& [name, value] : report.metrics) out.add(name, value);
  JsonArray classes, rows;
  for (std::size_t i = 0; i < report.classes.size(); ++i) {
    const runtime::ClassQuality& q = report.classes[i];
    classes.add(JsonObject()
                    .add("name", names[i])
                    .add("precision", q.precision)
                    .add("recall", q.recall)
                    .add("f1", q.f1)
                    .add("support", q.support));
  }
  if (!classes.empty()) out.add("classes", classes);
  for (const auto& row : report.confusion) rows.add(JsonArray().add_all(row));
  if (!rows.empty()) out.add("confusion", rows);
}

std::string to_json(const runtime::Evaluation& e, std::span<const std::string> names, const runtime::Job& job,
                    const runtime::Memory& measured) {
  JsonObject out;
  out.add("loss", e.loss).add("loss_hex", fmt::format("{:a}", e.loss));
  add_classes(out, e.classes, names);
  return out.add("perplexity", e.perplexity)
             .add("tokens", e.labels)
             .add("sequences", e.sequences)
             .add("tokens_per_s", e.tokens_per_s)
             .add("ranks", job.ranks)
             .add("memory", JsonText{runtime::memory_json(job.plan.memory, &measured)})
             .add("exit", 0)
             .text() +
         "\n";
}

// The recipe that the options describe.
runtime::Recipe recipe_of(const EvalOptions& options, comm::World& world) {
  runtime::LoadedRecipe loaded = read_recipe(options.recipe, options.sets, world, false);
  if (options.adapter) {
    agree(world, [&] { require_sole_adapter(*options.adapter, loaded); });
    loaded.recipe.checkpoint.resume = "none";
  }
  return std::move(loaded.recipe);
}

void run(const EvalOptions& options, comm::World& world, const StopSignal& stop) {
  const runtime::Recipe asked = recipe_of(options, world);
  const bool prints = world.rank() == 0;
  std::optional<runtime::ReportFile> json;
  agree(world, [&] {
    if (!options.json || !prints) return;
    require_apart({{"--json", *options.json}}, inputs_of(asked, options.recipe));
    require_outside_checkpoints({{"--json", *options.json}}, asked);
    require_own({"--json", *options.json}, Content::evaluation, options.force);
    json.emplace(*options.json, "--json");
  });
  require_data(asked, false, world);
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  const int threads = static_cast<int>(asked.device.threads.value_or(share.cores));
  PlannedRun planned;
  try {
    planned = plan_run(asked, world, {runtime::Purpose::evaluate});
  } catch (const AgreedError& error) {
    if (json) {
      json->write(JsonObject().add("exit", static_cast<int>(error.code())).text() + "\n");
      json->close();
    }
    throw;
  }
  const runtime::Job& job = planned.job;
  const std::string ranks_threads = threads_text(share, threads, world);
  const std::string oversubscription = oversubscription_text(share, asked.device.threads, world);
  if (prints) {
    std::vector<std::string> model = {
        fmt::format("{} of {} parameters", job.model->family, count_text(job.model->parameters())),
        std::string(device::name_of(job.recipe.training.precision))};
    if (job.quantised()) model.emplace_back("frozen matrices in nf4");
    for (const std::string& line : wrapped("model", model)) note(line);
    for (const std::string& line : wrapped("ranks", {world.describe(), ranks_threads})) note(line);
    for (const std::string& line : wrapped("memory", {runtime::memory_text(job.plan) + " per rank"})) note(line);
    if (!oversubscription.empty()) note(oversubscription);
    print_notes(job.notes);  // the recipe's own notes concern training
  }

  const auto weights = runtime::weights_to_evaluate(job, world, threads, note);
  std::optional<Activity> activity;
  activity.emplace("reading weights", Activity::Unit::bytes, prints);
  runtime::Evaluator evaluator(job, world, threads, *weights, runtime::agree_on_algorithms(job, world, note),
                               activity->advance(), std::move(planned.data.validation));
  activity.emplace("evaluating micro-batches", Activity::Unit::count, prints);
  const runtime::Evaluation result = *evaluator.run([&](std::uint64_t done, std::uint64_t all) {
    if (stop.requested()) fail(Exit::failed, "stopped on request after {} of {} micro-batches", done, all);
    activity->show(done, all, "loss " + value_text(evaluator.loss_so_far(), 4));
    return true;
  });
  activity.reset();
  if (!prints) return;
  say("weights read in {:.2f} s", evaluator.load_seconds());
  if (const auto names = evaluator.class_names(); !names.empty()) {
    fmt::print("loss {}  {} in {}  {:.0f} labels/s\n", value_text(result.loss, 6), counted(result.labels, "label"),
               counted(result.sequences, "sequence"), result.tokens_per_s);
    const bool words = job.model->objective == models::Objective::token_classification;
    fmt::print("{}", class_text(result.classes, names, words ? "words" : "texts", terminal_columns(stdout)));
    for (const std::string& text : result.classes.notes) note(text);
  } else {
    fmt::print("loss {}  perplexity {}  {} in {}  {}\n", value_text(result.loss, 6), value_text(result.perplexity, 4),
               counted(result.labels, "token"), counted(result.sequences, "sequence"),
               tokens_rate_text(result.tokens_per_s));
  }
  if (!json) return;
  json->write(to_json(result, evaluator.class_names(), job, evaluator.executor().measured_memory()));
  json->close();
}

}  // namespace

int eval(const EvalOptions& options) {
  const StopSignal stop;
  return run_as_rank(options.recipe, options.sets, [&](comm::World& world) { run(options, world, stop); });
}

}  // namespace strata::launcher
