#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/plan/job.h"
#include "text/tokenizer.h"

namespace strata::runtime {

// What evaluation.prompts asks, for Answers: a line of the file each. If the run's data are conversations that a chat
// template wrote, a line is a user's turn; otherwise the model goes on from it as it is. A line of a file *.jsonl is a
// conversation in any case.
struct Prompts {
  struct Prompt {
    std::string text;  // the line
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint32_t> ends;  // of an answer, any of them
  };
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<Prompt> all;
  std::vector<std::string> remarks;  // of the tokenizer and the template, for the user
};

// The prompts of the job's recipe, as its model reads them. Throws AgreedError on all ranks if the file cannot be read,
// is not the same on all, or holds no prompt; if one leaves no room below data.seq_len; if the model comes with no
// tokenizer, or with no chat template or another one than the data's where one is needed. Collective.
Prompts read_prompts(const Job& job, comm::World& world);

}  // namespace strata::runtime
