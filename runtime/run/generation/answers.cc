#include "runtime/run/generation/answers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/run/generation/sampler.h"

namespace strata::runtime {

Answers::Answers(const Job& job, comm::World& world, Executor& training, Prompts prompts)
    : world_(world), mesh_(job.plan.mesh()), prompts_(std::move(prompts)), generator_(*job.generation, training) {}

std::uint32_t Answers::next(std::span<const float> logits) {
  const std::uint32_t own = logits.empty() ? 0 : Sampler(0, 1, 0).pick(logits, 0);
  if (mesh_.stages == 1) return own;
  const auto last = static_cast<std::size_t>(mesh_.rank_of(0, 0, mesh_.stages - 1));
  return static_cast<std::uint32_t>(std::stoul(world_.exchange(std::to_string(own))[last]));
}

Answer Answers::answer(const Prompts::Prompt& prompt, const std::function<void()>& after_token) {
  text::StreamDecoder decoder(*prompts_.tokenizer);
  Answer out{prompt.text, {}};
  generator_.restart();
  std::span<const float> logits = generator_.append(prompt.tokens);
  const std::size_t most = std::min(kAnswerTokens, generator_.capacity() - prompt.tokens.size());
  for (std::size_t n = 0; n < most; ++n) {
    after_token();
    const std::uint32_t token = next(logits);
    // Tokens that the model has beyond the tokenizer's vocabulary mean nothing.
    if (std::find(prompt.ends.begin(), prompt.ends.end(), token) != prompt.ends.end() ||
        token >= prompts_.tokenizer->vocab_size())
      break;
    out.completion += decoder.add(token);
    if (n + 1 < most) logits = generator_.append({&token, 1});
  }
  out.completion += decoder.finish();
  return out;
}

std::vector<Answer> Answers::run(const std::function<void()>& after_token) {
  std::vector<Answer> out;
  for (const Prompts::Prompt& prompt : prompts_.all) out.push_back(answer(prompt, after_token));
  return out;
}

}  // namespace strata::runtime
