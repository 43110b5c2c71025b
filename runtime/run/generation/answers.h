#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/run/generation/generator.h"
#include "runtime/run/reports/report.h"
#include "text/tokenizer.h"

namespace strata::runtime {

// Answers to the prompts of evaluation.prompts, one per line of that file, with the weights that a training has between
// two of its steps: the likeliest token each time, kAnswerTokens at most, up to the tokenizer's or the model's end of a
// text. Every rank has one; job and training outlive it.
inline constexpr std::size_t kAnswerTokens = 64;
class Answers {
 public:
  // `job` has a generation. Throws AgreedError if the file cannot be read or holds no prompt, if one leaves no room
  // below data.seq_len, or if the model comes with no tokenizer. Collective.
  Answers(const Job& job, comm::World& world, Executor& training);

  // After a drain. Collective; the same on all ranks.
  std::vector<Answer> run();
  const Memory& measured_memory() const { return generator_.executor().measured_memory(); }

 private:
  struct Prompt {
    std::string text;
    std::vector<std::uint32_t> tokens;
  };
  Answer answer(const Prompt& prompt);

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<Prompt> prompts_;
  std::vector<std::uint32_t> ends_;
  Generator generator_;
};

}  // namespace strata::runtime
