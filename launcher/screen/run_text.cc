#include "launcher/screen/run_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/forecast.h"
#include "launcher/screen/printable.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/data/batches.h"
#include "runtime/data/data_facts.h"
#include "runtime/data/files/tokens.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/keys.h"

namespace strata::launcher {
namespace {

constexpr std::size_t kLabel = 10;

void say_wrapped(const std::string& label, const std::vector<std::string>& parts) {
  for (const std::string& line : wrapped(label, parts)) note(line);
}

std::string plural(std::uint64_t n, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(n), for_count(n, one, many));
}

std::string schedule_text(const runtime::Recipe& recipe) {
  std::string name = runtime::find_key("scheduler.name")->text(recipe);
  std::erase(name, '"');
  std::string text = fmt::format("learning rate {:g}, {}", recipe.optimizer.learning_rate, name);
  if (recipe.scheduler.warmup_steps > 0)
    text += fmt::format(" after {}", plural(recipe.scheduler.warmup_steps, "step of warm-up", "steps of warm-up"));
  return text;
}

// Where checkpoints and reports go: "report.jsonl runs/a.jsonl". `traced`: report.trace has, or may get, a step.
std::vector<std::string> places(const runtime::Recipe& recipe, bool traced = true) {
  std::vector<std::string> out;
  const auto& [dir, jsonl, csv, tensorboard, summary, trace, machine, steps, every] = recipe.report;
  if (recipe.checkpoint.dir) out.push_back("checkpoints in " + recipe.checkpoint.dir->string());
  if (dir) out.push_back("reports in " + dir->string());
  const std::pair<const char*, const std::optional<std::filesystem::path>*> files[] = {
      {"steps", &jsonl}, {"table", &csv}, {"TensorBoard", &tensorboard}, {"summary", &summary}, {"trace", &trace}};
  for (const auto& [name, path] : files)
    if (*path && (path != &trace || traced) && (!dir || (*path)->parent_path() != *dir))
      out.push_back(fmt::format("{} {}", name, (*path)->string()));
  return out;
}

// Whether report.trace holds one of the run's steps: its last one, or one that report.trace_steps selects.
bool holds_a_step(const runtime::Recipe& recipe, const RunEnd& end) {
  const auto& picked = recipe.report.trace_steps;
  return picked.empty() || std::ranges::any_of(picked, [&](const runtime::StepRange& range) {
           return range.first <= end.last.step && range.last >= end.first.step;
         });
}

// One part of a step's time, in ms, measured and predicted.
struct StepPart {
  std::string_view to;
  double measured, predicted;
};

// All parts of a step's time, largest first: the parts of its critical path, and the time outside all its tasks.
std::vector<StepPart> parts_of_step(const runtime::Summary& summary, const std::optional<Forecast>& predicted) {
  std::vector<StepPart> out;
  for (std::size_t b = 0; b < summary.path.size(); ++b)
    out.push_back({runtime::kBoundWords[b], summary.path[b] * 1e3, predicted ? predicted->path[b] * 1e3 : 0});
  out.push_back({"in no task", runtime::in_no_task_ms(summary),
                 predicted ? std::max(0.0, predicted->step_ms - runtime::sum_of(predicted->path) * 1e3) : 0});
  std::stable_sort(out.begin(), out.end(),
                   [](const StepPart& a, const StepPart& b) { return a.measured > b.measured; });
  return out;
}

// The facts about the training data that `strata tokenize` recorded. Skips files that no longer exist.
std::vector<runtime::TokenSidecar> sidecars_of(const runtime::Recipe& recipe) {
  std::vector<runtime::TokenSidecar> out;
  try {
    for (const runtime::DataSource& source : recipe.data.train)
      for (const std::filesystem::path& file : runtime::expand_patterns(source.files, "data.train"))
        if (auto sidecar = runtime::read_sidecar(file)) out.push_back(std::move(*sidecar));
  } catch (const Error&) {
  }
  return out;
}

// The tokenizer option for a model without its own tokenizer: the one that made its tokens.
std::string tokenizer_option(const runtime::Recipe& recipe, const std::vector<runtime::TokenSidecar>& sidecars) {
  if (recipe.model.path) return "";
  const bool bytes = std::ranges::any_of(sidecars, [](const auto& sidecar) { return sidecar.tokenizer == "byte"; });
  return bytes ? " --tokenizer byte" : " --tokenizer FOLDER";
}

// The command for asking the model, with its chat template if that was used for the data.
std::string generate_command(const runtime::Recipe& recipe) {
  const auto sidecars = sidecars_of(recipe);
  const bool chats =
      std::ranges::any_of(sidecars, [](const auto& sidecar) { return !sidecar.chat_template_hash.empty(); });
  return fmt::format("strata generate --model {}{} {}", shell_word(recipe.checkpoint.dir->string()),
                     tokenizer_option(recipe, sidecars), chats ? "--chat -" : "--prompt TEXT");
}

// The command for classifying texts of the same form as in training.
std::string predict_command(const runtime::Recipe& recipe) {
  const auto sidecars = sidecars_of(recipe);
  const auto labelled = std::ranges::find_if(sidecars, [](const auto& sidecar) { return sidecar.labels.has_value(); });
  std::string options, texts = "TEXTS.csv";
  if (labelled != sidecars.end()) {
    const runtime::TokenSidecar::Labels& labels = *labelled->labels;
    if (!labels.field.empty() && labels.field != "text") options += " --field " + shell_word(labels.field);
    if (!labels.pair.empty()) options += " --pair " + shell_word(labels.pair);
    if (labels.problem == "token_classification") texts = "TEXTS.jsonl";  // texts for this objective are lists of words
  }
  return fmt::format("strata predict {} {}{}{} -o OUT.jsonl", shell_word(recipe.checkpoint.dir->string()), texts,
                     options, tokenizer_option(recipe, sidecars));
}

void describe_step(const runtime::Job& job, const runtime::Summary& summary,
                   const std::optional<runtime::Machine>& machine, int ranks_per_node) {
  if (summary.spans.empty() || summary.steps == 0) return;
  std::optional<Forecast> predicted;
  if (machine) predicted = forecast(job, *machine, ranks_per_node);
  const std::vector<StepPart> rows = parts_of_step(summary, predicted);
  double whole = 0;
  for (const StepPart& row : rows) whole += row.measured;
  if (whole <= 0) return;
  if (!predicted) {
    std::vector<std::string> parts;
    for (const StepPart& row : rows)
      if (row.measured >= 0.005 * whole) parts.push_back(fmt::format("{} {:.0f}%", row.to, 100 * row.measured / whole));
    if (!parts.empty())
      parts[0] = fmt::format("step {} took {}: {}", summary.timed_step, step_time_text(whole), parts[0]);
    say_wrapped("time", parts);
    return;
  }
  say("{:<{}}{:<24}{:>10}{:>11}", "time", kLabel, "of a step, in ms", "measured", "predicted");
  for (const StepPart& row : rows)
    if (row.measured >= 0.005 * whole || row.predicted >= 0.005 * predicted->step_ms)
      say("{:<{}}{:<24}{:>10.1f}{:>11.1f}", "", kLabel, row.to, row.measured, row.predicted);
  say("{:<{}}{:<24}{:>10.1f}{:>11.1f}{}", "", kLabel, fmt::format("step {}", summary.timed_step), whole,
      predicted->step_ms, machine->measured ? "" : "  (from data sheets)");
}

}  // namespace

std::vector<std::string> wrapped(const std::string& label, const std::vector<std::string>& parts, std::size_t columns) {
  std::vector<std::string> lines = {fmt::format("{:<{}}", label, kLabel)};
  bool begun = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = parts[i] + (i + 1 < parts.size() ? "," : "");
    if (begun && lines.back().size() + 1 + part.size() > columns) {
      lines.emplace_back(kLabel, ' ');
      begun = false;
    }
    lines.back() += (std::exchange(begun, true) ? " " : "") + part;
  }
  return lines;
}

namespace {

std::string schedule_text(const runtime::Recipe::Parallel& parallel) {
  if (parallel.schedule == runtime::Schedule::all_forward_all_backward) return "all forwards first";
  if (parallel.schedule == runtime::Schedule::interleaved)
    return fmt::format("interleaved, {} chunks", parallel.chunks);
  return "one forward, one backward";
}

// "3 of 2 ranks each", "1F1B", "4, 5 and 5 units".
std::vector<std::string> stages_text(const runtime::Job& job) {
  const runtime::Mesh& mesh = job.plan.mesh();
  std::vector<std::size_t> units;
  for (int stage = 0; stage < mesh.stages; ++stage)
    units.push_back(runtime::units_of_stage(job.plan.pieces, mesh.stages, stage).all().size());
  const std::string last = plural(units.back(), "unit", "units");
  units.pop_back();
  return {fmt::format("{} of {} each", mesh.stages, plural(mesh.ranks_per_stage(), "rank", "ranks")),
          schedule_text(job.recipe.parallel), fmt::format("{} and {}", fmt::join(units, ", "), last)};
}

// "2 ranks share each", "4 virtual shards", "rows divided".
std::vector<std::string> tensor_text(const runtime::Recipe::Parallel& parallel, std::size_t shards) {
  std::vector<std::string> parts = {fmt::format("{} share each", plural(parallel.tensor, "rank", "ranks")),
                                    plural(shards, "virtual shard", "virtual shards")};
  if (parallel.sequence) parts.emplace_back("rows divided between them");
  return parts;
}

// ", of which 37.4K are trained (LoRA of rank 4), frozen matrices in nf4"; empty if all are trained.
std::string trained_text(const runtime::Job& job) {
  const std::size_t trained = job.model->trained_parameters();
  if (trained == job.model->parameters()) return {};
  const runtime::Recipe::AdapterKeys& adapter = job.adapter();
  std::string kind;
  if (adapter.kind == runtime::AdapterKind::lora)
    kind = fmt::format(" ({} of rank {})", adapter.lora.dora ? "DoRA" : "LoRA", adapter.lora.rank);
  return fmt::format(", of which {} are trained{}{}", count_text(trained), kind,
                     job.quantised() ? ", frozen matrices in nf4" : "");
}

}  // namespace

std::string zero_text(std::uint64_t stage, int data_ranks, int ranks) {
  return fmt::format("ZeRO-{} over {}", stage, counted(data_ranks, data_ranks < ranks ? "data rank" : "rank"));
}

void describe_run(const runtime::Job& job, std::span<const std::string> notes_of_recipe,
                  const runtime::RankDevice& rank_device, const comm::World& world, const std::string& threads) {
  const runtime::StepPlan& plan = job.plan;
  const runtime::Recipe& recipe = job.recipe;
  const auto sequences =
      static_cast<std::uint64_t>(recipe.training.micro_batch_size * plan.accumulation * plan.mesh().data());
  say_wrapped("model", {fmt::format("{} of {} parameters{}", job.model->family, count_text(job.model->parameters()),
                                    trained_text(job)),
                        std::string(device::name_of(recipe.training.precision)),
                        zero_text(static_cast<std::uint64_t>(recipe.zero.stage), plan.mesh().data(), plan.ranks())});
  say_wrapped("step",
              {fmt::format("{} of {} tokens per step", plural(sequences, "sequence", "sequences"), recipe.data.seq_len),
               fmt::format("{} of {} per rank", plural(plan.accumulation, "micro-batch", "micro-batches"),
                           recipe.training.micro_batch_size),
               plan.vertical ? "vertical order" : "horizontal order",
               plan.fast ? "reduced once per step" : "reduced in order"});
  if (recipe.training.max_steps.value_or(0) > 0)
    say_wrapped("schedule", {plural(*recipe.training.max_steps, "step", "steps"), schedule_text(recipe)});
  const bool staged = plan.mesh().stages > 1;
  if (staged) say_wrapped("stages", stages_text(job));
  if (plan.mesh().tensor > 1) say_wrapped("layers", tensor_text(recipe.parallel, job.shards()));
  std::vector<std::string> memory = {runtime::memory_text(plan) + (staged ? " per rank of stage 0" : " per rank")};
  if (plan.tile_bytes) memory.push_back(runtime::tiling_text(plan));
  say_wrapped("ranks", {world.describe(), threads});
  if (plan.device.kind != device::Kind::cpu) say_wrapped("device", {runtime::describe(rank_device)});
  say_wrapped("memory", memory);
  print_notes(notes_of_recipe);
  print_notes(job.notes);
  const auto where = places(recipe);
  if (!where.empty()) say_wrapped("writes", where);
  if (where.empty())
    note("nothing will be saved: set checkpoint.dir to keep weights, report.dir to keep losses");
  else if (!recipe.checkpoint.dir)
    note("weights will not be saved: set checkpoint.dir to keep them");
}

void describe_data(const runtime::Job& job, const runtime::Trainer& trainer) {
  const runtime::Batches* batches = trainer.batches();
  const std::int64_t steps = job.recipe.training.max_steps.value_or(0);
  if (!batches) return;
  std::uint64_t tokens = 0, documents = 0;
  bool all_known = true;
  std::size_t files = 0;
  for (const runtime::Source& source : batches->sources())
    for (const runtime::TokenFile& file : source.sequences->files()) {
      ++files;
      tokens += file.count();
      const bool known = file.sidecar() && file.sidecar()->documents;
      all_known = all_known && known;
      if (known) documents += file.sidecar()->documents->count;
    }
  const std::uint64_t per_step = job.plan.micro_batches();
  const double epochs = batches->epochs_before(static_cast<std::uint64_t>(steps) * per_step);
  std::vector<std::string> parts = {plural(files, "file", "files"), fmt::format("{} tokens", count_text(tokens))};
  if (all_known && documents > 0) parts.push_back(plural(documents, "document", "documents"));
  parts.push_back(
      fmt::format("{} of {} tokens", plural(batches->sequences(), "sequence", "sequences"), job.recipe.data.seq_len));
  const bool one = batches->sources().size() == 1;
  if (const auto* packing = batches->sources()[0].sequences->packing(); packing && one)
    for (std::string& text : runtime::packing_texts(*packing, batches->sequences(), job.recipe.data.seq_len))
      parts.push_back(std::move(text));
  if (steps == 0)
    parts.push_back(fmt::format(
        "an epoch is {}",
        plural(static_cast<std::uint64_t>(std::ceil(1 / batches->epochs_before(per_step))), "step", "steps")));
  else
    parts.push_back(fmt::format("{:.2f} epochs in {}", epochs, plural(steps, "step", "steps")));
  say_wrapped("data", parts);
  if (one || steps == 0) return;
  const auto micro_batches = static_cast<std::uint64_t>(steps) * per_step;
  for (const std::string& line : runtime::describe_data(*batches, job.recipe, micro_batches)) note(line);
}

std::string typed_recipe(const std::optional<std::filesystem::path>& file, const std::vector<std::string>& sets) {
  std::vector<std::string> words;
  if (file) words.push_back(shell_word(file->string()));
  for (const std::string& set : sets)
    if (!set.starts_with("checkpoint.resume=")) words.push_back("--set " + shell_word(set));
  return fmt::format("{}", fmt::join(words, " "));
}

namespace {
std::string skipped_as(const SkippedSteps& skipped) {
  if (skipped.forwards == skipped.skipped) return "skipped, because the forward was not finite in fp16";
  return skipped.forwards == 0
             ? "skipped, because gradients overflowed in fp16"
             : fmt::format(
                   "skipped in fp16, {} because the forward was not finite, the others because gradients overflowed",
                   grouped(skipped.forwards));
}
constexpr const char* kForForwards = "set training.precision = bf16 or fp32, or lower optimizer.learning_rate";
}  // namespace

std::string skipped_text(const SkippedSteps& skipped, float scale) {
  // Up to this share, skipped steps are the normal price for trying larger loss scales.
  constexpr double kFew = 0.02;
  const std::string what =
      fmt::format("{} of {} {} {}", grouped(skipped.skipped), plural(skipped.steps, "step", "steps"),
                  for_count(skipped.skipped, "was", "were"), skipped_as(skipped));
  if (skipped.forwards > 0) return fmt::format("{}: {}", what, kForForwards);
  if (static_cast<double>(skipped.skipped) <= kFew * static_cast<double>(skipped.steps))
    return what + ": a few are normal while the loss scale adapts";
  return fmt::format("{}: set fp16.initial_scale = {:g}, the scale at the end, or training.precision = bf16", what,
                     scale);
}

std::string nothing_applied_text(const runtime::Recipe& recipe, const SkippedSteps& skipped, float scale) {
  const std::string what =
      fmt::format("nothing was trained: {} {}",
                  skipped.steps == 1 ? "the only step was" : fmt::format("all {} steps were", grouped(skipped.steps)),
                  skipped_as(skipped));
  if (skipped.forwards > 0) return fmt::format("{}: {}", what, kForForwards);
  // A scale above the default may need many more steps to fall to a value at which gradients are finite.
  const double advised = std::min<double>(scale, runtime::Recipe{}.fp16.initial_scale);
  return fmt::format(
      "{}, and the loss scale has fallen to {:g}: {}set fp16.initial_scale = {:g}, or training.precision = bf16", what,
      scale, recipe.checkpoint.dir ? "raise training.max_steps to resume from its checkpoint with that scale, or " : "",
      advised);
}

void describe_end(const std::string& typed, const runtime::Job& job, const runtime::Summary& summary, const RunEnd& end,
                  const std::optional<runtime::Machine>& machine, int ranks_per_node) {
  const runtime::Recipe& recipe = job.recipe;
  if (end.last.step == end.first.step)
    say_wrapped("loss", {fmt::format("{} in step {}", value_text(end.last.loss, 4), end.last.step)});
  else
    say_wrapped("loss", {fmt::format("{} in step {}", value_text(end.first.loss, 4), end.first.step),
                         fmt::format("{} in step {}", value_text(end.last.loss, 4), end.last.step)});
  say_wrapped("speed", {tokens_rate_text(summary.tokens_per_s), step_time_text(end.median_ms) + " per step (medians)",
                        fmt::format("{} for {}", duration_text(end.seconds),
                                    plural(end.last.step - end.first.step + 1, "step", "steps"))});
  describe_step(job, summary, machine, ranks_per_node);
  std::vector<std::string> memory;
  const runtime::StageFigures& largest = runtime::largest_of(summary.stages);
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier) {
    if (largest.planned[tier].peak == 0) continue;
    memory.push_back(fmt::format("{} {} planned", runtime::tier_title(tier, job.plan.device.kind == device::Kind::cpu),
                                 bytes_text(largest.planned[tier].peak)));
    memory.push_back(fmt::format("{} measured", bytes_text(largest.measured[tier].peak)));
  }
  if (summary.stages.size() > 1)
    memory.push_back(fmt::format("in stage {}, which needs the most", &largest - summary.stages.data()));
  if (!summary.peak_rss.empty())
    memory.push_back(fmt::format("{} the largest process",
                                 bytes_text(*std::max_element(summary.peak_rss.begin(), summary.peak_rss.end()))));
  say_wrapped("memory", memory);
  if (const auto where = places(recipe, holds_a_step(recipe, end)); !where.empty()) say_wrapped("files", where);
  // The next commands use the best checkpoint if it is kept and is not the newest one.
  runtime::Recipe of_best = recipe;
  if (recipe.checkpoint.dir && recipe.checkpoint.keep_best && summary.best) {
    const std::filesystem::path best = runtime::step_folder(*recipe.checkpoint.dir, summary.best->step);
    say_wrapped("best", {fmt::format("{} {} after step {}", summary.metric, value_text(summary.best->value, 4),
                                     summary.best->step),
                         best.string()});
    if (summary.best->step != end.last.step) of_best.checkpoint.dir = best;
  }
  std::vector<std::string> next;
  if (recipe.checkpoint.dir) {
    const std::string from = shell_word(of_best.checkpoint.dir->string());
    if (!recipe.data.validation.empty()) next.push_back("strata eval " + typed);
    if (runtime::generates(job.model->objective)) next.push_back(generate_command(of_best));
    if (job.model->loss_unit().classes() > 0) next.push_back(predict_command(of_best));
    next.push_back(fmt::format("strata export {} -o FOLDER", from));
  }
  if (recipe.report.dir)
    next.push_back(fmt::format("strata report {} -o report.html", shell_word(recipe.report.dir->string())));
  // Print each command on one line, unwrapped and without a comma, so that it can be pasted.
  for (std::size_t i = 0; i < next.size(); ++i) say("{:<{}}{}", i == 0 ? "next" : "", kLabel, next[i]);
}

std::string resume_command(std::string_view resume) {
  if (const char* typed = std::getenv(kTypedResume)) resume = typed;
  // With any other value, the command would start where this run started.
  return resume == "auto" ? "the same command" : "the same command with --set checkpoint.resume=auto";
}

}  // namespace strata::launcher
