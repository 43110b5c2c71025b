#include "runtime/run/generation/answers.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/same_files.h"
#include "models/files/end_tokens.h"
#include "runtime/checkpoint/model_folder.h"
#include "runtime/data/tokens.h"
#include "runtime/run/generation/sampler.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// Of the model's folder; of a preset, the one that its training tokens were made with, if that is in the program.
fs::path tokenizer_of(const Recipe& recipe, std::optional<fs::path>& folder) {
  if (recipe.model.path) folder = ModelFolder(*recipe.model.path).hugging_face();
  if (folder) return *folder;
  for (const fs::path& file : expand_patterns(recipe.data.validation, "data.validation"))
    if (const auto sidecar = read_sidecar(file); sidecar && sidecar->tokenizer == "byte") return "byte";
  fail(
      Exit::usage,
      "evaluation.prompts needs a tokenizer, and the model comes with none: set model.path to a Hugging Face directory "
      "that has one");
}

}  // namespace

Answers::Answers(const Job& job, comm::World& world, Executor& training) : generator_(*job.generation, training) {
  const fs::path& path = *job.recipe.evaluation.prompts;
  comm::agree(world, [&] {
    std::error_code error;
    const bool is_file = fs::is_regular_file(path, error);  // a device might have no end
    std::ifstream file(path);
    if (!file || !is_file) fail(Exit::usage, "evaluation.prompts: {} cannot be read", path.string());
    std::optional<fs::path> folder;
    tokenizer_ = text::load_tokenizer(tokenizer_of(job.recipe, folder));
    if (tokenizer_->vocab_size() > job.model->vocabulary)
      fail(Exit::usage, "evaluation.prompts: the tokenizer {} has {} tokens and the model {}", tokenizer_->name(),
           tokenizer_->vocab_size(), job.model->vocabulary);
    if (folder) ends_ = models::end_tokens(*folder);
    if (const auto end = tokenizer_->end_of_text()) ends_.push_back(*end);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.empty()) continue;
      std::vector<std::uint32_t> tokens = tokenizer_->encode(line, true);
      if (tokens.size() >= generator_.capacity())
        fail(Exit::usage, "{}: line {} has {} tokens, and data.seq_len = {} leaves no room for an answer",
             path.string(), number, tokens.size(), generator_.capacity());
      prompts_.push_back({std::move(line), std::move(tokens)});
    }
    if (prompts_.empty()) fail(Exit::usage, "evaluation.prompts: {} holds no prompt: one per line", path.string());
  });
  const comm::Seen seen = comm::look_at(path, "evaluation.prompts");
  comm::require_same({&seen, 1}, world);
}

Answer Answers::answer(const Prompt& prompt) {
  Sampler sampler(0, 1, 0);
  text::StreamDecoder decoder(*tokenizer_);
  Answer out{prompt.text, {}};
  generator_.restart();
  std::span<const float> logits = generator_.append(prompt.tokens);
  const std::size_t most = std::min(kAnswerTokens, generator_.capacity() - prompt.tokens.size());
  for (std::size_t n = 0; n < most; ++n) {
    const std::uint32_t token = sampler.pick(logits, n);
    // Words that the model has beyond the tokenizer's mean nothing.
    if (std::find(ends_.begin(), ends_.end(), token) != ends_.end() || token >= tokenizer_->vocab_size()) break;
    out.completion += decoder.add(token);
    if (n + 1 < most) logits = generator_.append({&token, 1});
  }
  out.completion += decoder.finish();
  return out;
}

std::vector<Answer> Answers::run() {
  std::vector<Answer> out;
  for (const Prompt& prompt : prompts_) out.push_back(answer(prompt));
  return out;
}

}  // namespace strata::runtime
