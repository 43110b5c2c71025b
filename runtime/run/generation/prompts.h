#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/plan/job.h"
#include "text/tokenizer.h"

namespace strata::runtime {

// The prompts of evaluation.prompts, for Answers: one per line of the file. If the run's data are conversations that a
// chat template wrote, a line is a user's turn; otherwise the model continues the line as it is. A line of a *.jsonl
// file is always a conversation.
struct Prompts {
  struct Prompt {
    std::string text;  // the line
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint32_t> ends;  // tokens that end an answer
  };
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<Prompt> all;
  std::vector<std::string> remarks;  // about the tokenizer and the template, for the user
};

// The prompts of the job's recipe, as tokens of its model. Throws AgreedError on all ranks if the file cannot be read,
// differs between ranks or holds no prompt, if a prompt leaves no room below data.seq_len, or if the model has no
// tokenizer, or has no chat template or another one than the data's when one is needed. Collective.
Prompts read_prompts(const Job& job, comm::World& world);

}  // namespace strata::runtime
