#include "launcher/reply_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "launcher/adapter_option.h"
#include "launcher/rank/planned_run.h"
#include "launcher/screen/printable.h"
#include "runtime/job/search/algorithms.h"
#include "runtime/run/generation/generator.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;

// The recipe that the options describe. zero.stage comes first, so that --set can override it.
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

// The same with the weights sharded over the ranks, unless --set says otherwise.
std::vector<std::string> sharded(std::vector<std::string> sets) {
  sets[0] = "zero.stage=3";
  return sets;
}

// Sharded weights are gathered again for every token, so they are sharded only if they do not all fit on the device.
bool fits_unsharded(const runtime::Workload& workload, const runtime::Capacity& capacity, comm::World& world) {
  bool fit = false;
  agree(world, [&] {
    fit = workload.recipe.zero.parameters == runtime::Tier::device &&
          fits(make_job(workload, world.size(), capacity, runtime::Purpose::generate).plan, capacity);
  });
  return fit;
}

}  // namespace

ReplyGenerator::ReplyGenerator(const GenerateOptions& options, const runtime::ModelFolder& folder, comm::World& world,
                               int threads)
    : options_(options), folder_(folder), world_(world), threads_(threads) {}

void ReplyGenerator::plan(std::size_t positions, const std::vector<std::uint32_t>& prompt,
                          const text::Tokenizer* tokenizer) {
  const bool first = !job_;
  generator_.reset();
  read_.clear();
  const std::vector<std::string> sets = recipe_of(options_, folder_, positions);
  const auto shard_if_large = [&](runtime::Workload& workload, const runtime::Capacity& capacity) {
    if (world_.size() > 1 && !fits_unsharded(workload, capacity, world_))
      workload = workload.with(read_recipe(std::nullopt, sharded(sets), world_, false).recipe);
  };
  const RunPlanning planning = {
      .purpose = runtime::Purpose::generate, .looks_at_data = false, .adjust = shard_if_large};
  const runtime::LoadedRecipe loaded = read_recipe(std::nullopt, sets, world_, false);
  if (options_.adapter) agree(world_, [&] { require_sole_adapter(*options_.adapter, loaded); });
  const runtime::Recipe& asked = loaded.recipe;
  // More positions do not change the model, so the job is planned again without opening the model.
  job_ = std::move((first ? plan_run(asked, world_, planning) : plan_run(job_->with(asked), world_, planning)).job);
  const runtime::Recipe& recipe = job_->recipe;
  threads_ = static_cast<int>(recipe.device.threads.value_or(threads_));
  agree(world_, [&] { check(prompt, tokenizer); });
  if (first && world_.rank() == 0 && *job_->model_path() != options_.model)
    say("weights of {}", job_->model_path()->string());
  if (first && world_.rank() == 0) print_notes(job_->notes);
  weights_ = runtime::first_weights(*job_, world_, threads_, note);
  const auto algorithms = runtime::agree_on_algorithms(*job_, world_, note);
  generator_.emplace(*job_, world_, threads_, *weights_, algorithms);
}

void ReplyGenerator::check(const std::vector<std::uint32_t>& prompt, const text::Tokenizer* tokenizer) const {
  const runtime::Recipe& recipe = job_->recipe;
  if (const auto wanted = static_cast<std::int64_t>(prompt.size()) + options_.max_new_tokens;
      recipe.data.seq_len < wanted)
    fail(Exit::usage, "data.seq_len = {} has no room for {} of prompt and {} more: leave that key out",
         recipe.data.seq_len, counted(prompt.size(), "token"), options_.max_new_tokens);
  if (tokenizer && tokenizer->vocab_size() > job_->model->vocabulary)
    fail(Exit::usage, "the tokenizer {} has {} tokens, but the model has {}: name the model's own with --tokenizer",
         tokenizer->name(), tokenizer->vocab_size(), job_->model->vocabulary);
  for (const std::uint32_t token : prompt)
    if (token >= job_->model->vocabulary)
      fail(Exit::usage, "token {} of the prompt is not below the model's vocabulary of {}", token,
           job_->model->vocabulary);
}

Generated ReplyGenerator::answer(const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& ends,
                                 const text::Tokenizer* tokenizer, const StopSignal& stop, const Emit& emit) {
  const std::size_t wanted = prompt.size() + static_cast<std::size_t>(options_.max_new_tokens);
  const bool continues = generator_ && generator_->capacity() >= wanted && read_.size() < prompt.size() &&
                         std::equal(read_.begin(), read_.end(), prompt.begin());
  if (!generator_)
    plan(wanted, prompt, tokenizer);
  else if (!continues)  // leave room for the next turns
    plan(std::max(wanted, std::min(2 * generator_->capacity(), job_->model->max_positions)), prompt, tokenizer);
  Generated out;
  runtime::Sampler sampler(options_.temperature, options_.top_p, options_.seed);
  auto start = SteadyClock::now();
  std::span<const float> logits = generator_->append(std::span(prompt).subspan(read_.size()));
  read_ = prompt;
  out.prompt_s = seconds_since(start);
  start = SteadyClock::now();
  while (true) {
    const std::uint32_t token = sampler.pick(logits, out.tokens.size());
    if (!std::isfinite(logits[token]))
      throw AgreedError(Exit::failed, "the logits are not finite: try --precision fp32");
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    out.tokens.push_back(token);
    emit(token);
    if (out.tokens.size() == static_cast<std::size_t>(options_.max_new_tokens)) break;
    if (stop.requested()) fail(Exit::failed, "stopped on request after {}", counted(out.tokens.size(), "token"));
    logits = generator_->append({&token, 1});
    read_.push_back(token);
  }
  out.tokens_s = seconds_since(start);
  return out;
}

}  // namespace strata::launcher
