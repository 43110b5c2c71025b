#include "launcher/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/same_files.h"
#include "launcher/outputs.h"
#include "launcher/overwrite.h"
#include "launcher/printable.h"
#include "launcher/rank/agreement.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "models/files/end_tokens.h"
#include "runtime/checkpoint/model_folder.h"
#include "runtime/job/algorithms.h"
#include "runtime/recipe/value.h"
#include "runtime/run/generator.h"
#include "runtime/run/report.h"
#include "runtime/run/sampler.h"
#include "text/tokenizer.h"
#include "text/unicode/utf8.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The recipe that the options stand for; zero.stage comes first, so that --set may say otherwise.
std::vector<std::string> recipe_of(const GenerateOptions& options, const runtime::ModelFolder& folder,
                                   std::size_t positions) {
  std::vector<std::string> sets = {
      "zero.stage=0", fmt::format("model.path={}", folder.path().string()),
      fmt::format("training.precision={}",
                  options.precision ? *options.precision : std::string(device::name_of(folder.dtype()))),
      fmt::format("data.seq_len={}", positions)};
  sets.insert(sets.end(), options.sets.begin(), options.sets.end());
  return sets;
}

// The same with weights shared out between ranks, unless --set says how they are.
std::vector<std::string> sharded(std::vector<std::string> sets) {
  sets[0] = "zero.stage=3";
  return sets;
}

// Shared out, weights are gathered anew for every token: only where they do not fit whole on the device.
bool fits_whole(const runtime::Recipe& recipe, const runtime::Capacity& capacity, comm::World& world) {
  bool fit = false;
  agree(world, [&] {
    fit = recipe.zero.parameters == runtime::Tier::device &&
          fits(make_job(recipe, world.size(), capacity, runtime::Purpose::generate).plan, capacity);
  });
  return fit;
}

// What was generated, and how fast.
struct Generated {
  std::vector<std::uint32_t> tokens;
  double prompt_s = 0, tokens_s = 0;  // tokens_s: of all but the first, which the prompt gives
  double tokens_per_s() const { return tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / tokens_s : 0; }
};

template <typename Emit>
Generated generate_tokens(const GenerateOptions& options, runtime::Generator& generator,
                          const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& ends,
                          const StopSignal& stop, Emit&& emit) {
  Generated out;
  runtime::Sampler sampler(options.temperature, options.top_p, options.seed);
  auto start = Clock::now();
  std::span<const float> logits = generator.append(prompt);
  out.prompt_s = seconds_since(start);
  start = Clock::now();
  while (true) {
    const std::uint32_t token = sampler.pick(logits, out.tokens.size());
    if (!std::isfinite(logits[token]))
      throw AgreedError(Exit::failed, "the logits are not finite: try --precision fp32");
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    out.tokens.push_back(token);
    emit(token);
    if (out.tokens.size() == static_cast<std::size_t>(options.max_new_tokens)) break;
    if (stop.requested()) fail(Exit::failed, "stopped on request after {} tokens", out.tokens.size());
    logits = generator.append({&token, 1});
  }
  out.tokens_s = seconds_since(start);
  return out;
}

void run(const GenerateOptions& options, comm::World& world, const StopSignal& stop) {
  const bool speaks = world.rank() == 0;
  std::vector<std::uint32_t> prompt, ends;
  std::vector<std::string> sets;
  std::unique_ptr<text::Tokenizer> tokenizer;  // none: tokens in, tokens out
  std::optional<runtime::ReportFile> json;
  const auto require_same = [&](const char* what, const std::string& mine) {
    const std::vector<std::string> all = world.exchange(mine);
    const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != all[0]; });
    if (other != all.end())
      throw AgreedError(Exit::usage, fmt::format("rank {} was given another {} than rank 0: start all ranks with the "
                                                 "same command",
                                                 other - all.begin(), what));
  };
  require_same("model", options.model.string());
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  // Held until the weights are read: a run may be writing newer checkpoints there.
  const auto folder = runtime::agree_on_model(options.model, share.cores, world, note);
  agree(world, [&] {
    prompt = options.prompt_tokens;
    if (options.json && speaks) {
      runtime::Recipe reads;
      reads.model.path = folder.path();
      require_apart({{"--json", *options.json}}, inputs_of(reads, std::nullopt));
      require_own({"--json", *options.json}, Content::generation, options.force);
      json.emplace(*options.json);
    }
    const auto beside = folder.hugging_face();
    if (beside) ends = models::end_tokens(*beside);
    if (options.prompt) {
      if (!options.tokenizer && !beside)
        fail(Exit::usage, "{} names no tokenizer: give --tokenizer byte or a Hugging Face directory",
             folder.path().string());
      tokenizer = text::load_tokenizer(options.tokenizer ? *options.tokenizer : *beside);
      prompt = tokenizer->encode(*options.prompt, true);
      if (const auto end = tokenizer->end_of_text()) ends.push_back(*end);
    }
    if (prompt.empty()) fail(Exit::usage, "the prompt is empty: generation needs a token to start from");
    sets = recipe_of(options, folder, prompt.size() + static_cast<std::size_t>(options.max_new_tokens));
  });
  require_same("prompt or other options", fmt::format("{} {} {} {} {}", fmt::join(prompt, " "), options.max_new_tokens,
                                                      options.temperature, options.top_p, options.seed));
  const comm::Seen seen_ends{"end-of-text token (generation_config.json, config.json, the tokenizer)",
                             fmt::format("{}", fmt::join(ends, " "))};
  comm::require_same({&seen_ends, 1}, world);
  runtime::Recipe recipe = read_recipe(std::nullopt, sets, world, false);
  const int threads = static_cast<int>(recipe.device.threads.value_or(share.cores));
  const runtime::Capacity capacity = agree_on_capacity(recipe, agree_on_seat(recipe, world), world);
  if (world.size() > 1 && !fits_whole(recipe, capacity, world))
    recipe = read_recipe(std::nullopt, sharded(sets), world, false);
  const runtime::Job job = plan_job(recipe, capacity, world, runtime::Purpose::generate);
  require_same_plan(job, world);
  agree(world, [&] {
    if (const auto wanted = static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens;
        recipe.data.seq_len < wanted)
      fail(Exit::usage, "data.seq_len = {} has no room for {} tokens of prompt and {} new ones: leave that key alone",
           recipe.data.seq_len, prompt.size(), options.max_new_tokens);
    if (tokenizer && tokenizer->vocab_size() > job.model->vocabulary)
      fail(Exit::usage, "the tokenizer {} has {} tokens and the model {}: give the model's own with --tokenizer",
           tokenizer->name(), tokenizer->vocab_size(), job.model->vocabulary);
    for (const std::uint32_t token : prompt)
      if (token >= job.model->vocabulary)
        fail(Exit::usage, "token {} of the prompt is not below the model's vocabulary of {}", token,
             job.model->vocabulary);
  });
  if (speaks && *recipe.model.path != options.model) say("weights of {}", recipe.model.path->string());
  const auto weights = runtime::first_weights(job, world, threads, note);
  const auto algorithms = runtime::agree_on_algorithms(job, world, note);
  runtime::Generator generator(job, world, threads, *weights, algorithms);

  std::optional<text::StreamDecoder> decoder;
  if (tokenizer) decoder.emplace(*tokenizer);
  std::string all;
  const auto write = [&](const std::string& text) {
    all += text;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const Generated result = generate_tokens(options, generator, prompt, ends, stop, [&](std::uint32_t token) {
    if (speaks) write(decoder ? decoder->add(token) : fmt::format("{}{}", all.empty() ? "" : " ", token));
  });
  const std::string ranks_threads = threads_text(share, threads, world);
  if (!speaks) return;
  if (decoder) write(decoder->finish());
  if (isatty(STDOUT_FILENO) == 1) fmt::print("\n");
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail(Exit::failed, "standard output cannot be written");
  say("{} tokens read in {:.2f} s, {} written at {:.1f} tokens/s ({}, {}, {}{})", prompt.size(), result.prompt_s,
      result.tokens.size(), result.tokens_per_s(), device::name_of(recipe.training.precision), world.describe(),
      ranks_threads, job.plan.sharded_parameters() ? ", weights sharded" : "");
  if (!json) return;
  std::string text;  // JSON is UTF-8, and what a model writes need not be
  text::append_repaired(all, text);
  json->write(fmt::format(
      "{{\"prompt_tokens\":[{}],\"tokens\":[{}],\"text\":{},\"prompt_s\":{},\"tokens_per_s\":{},\"ranks\":{},"
      "\"memory\":{},\"exit\":0}}\n",
      fmt::join(prompt, ","), fmt::join(result.tokens, ","), runtime::json_string(text),
      runtime::json_number(result.prompt_s), runtime::json_number(result.tokens_per_s()), job.ranks,
      runtime::memory_json(job.plan.memory, &generator.executor().measured_memory())));
  json->close();
}

}  // namespace

int generate(const GenerateOptions& options) {
  const StopSignal stop;
  return run_as_rank(std::nullopt, options.sets, [&](comm::World& world) { run(options, world, stop); });
}

}  // namespace strata::launcher
