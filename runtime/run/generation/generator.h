#pragma once
// runtime/run/generation/ continues a prompt: the logits of the next token, the choice of a token, and the
// prompts that an evaluation answers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/job.h"
#include "runtime/weights/weights.h"
#include "text/tokenizer.h"

namespace strata::runtime {

// Reads one sequence piece by piece and returns the logits of the next token. Its plan has only forwards, in which
// blocks keep their keys and values. Every rank makes the same calls, with the weights placed as in the job, and gets
// the same bits. Job (made for Purpose::generate) and world must outlive it.
class Generator {
 public:
  // Collective. algorithms: as agreed on (runtime/job/search/algorithms.h).
  Generator(const Job& job, comm::World& world, int threads, const WeightSource& weights,
            std::shared_ptr<const device::AlgorithmTable> algorithms = {});
  // Uses the weights of a training run; call it only while that is drained. `job`: Job::generation of the run's job.
  Generator(const Job& job, Executor& training);

  // Begins a new sequence.
  void restart();
  // Appends the tokens (at least one, all below the vocabulary) to the sequence; returns the logits of the next token,
  // [vocabulary], valid until the next call; empty on ranks of pipeline stages without the head.
  std::span<const float> append(std::span<const std::uint32_t> tokens);

  std::size_t length() const { return length_; }
  // The maximum length of the sequence.
  std::size_t capacity() const { return static_cast<std::size_t>(job_.recipe.data.seq_len); }
  const Executor& executor() const { return *executor_; }

 private:
  const Job& job_;
  std::unique_ptr<Executor> executor_;
  std::size_t length_ = 0;
};

// Chooses the next token from logits. Temperature 0: the largest logit, the first if several are equal. Otherwise at
// random by softmax(logits / temperature), restricted to the most likely tokens whose probabilities add up to top_p
// (nucleus sampling, Holtzman et al. 2020). The random number of the n-th token is Philox's for (seed, n): the same on
// all ranks and independent of earlier draws.
class Sampler {
 public:
  // temperature >= 0, 0 < top_p <= 1.
  Sampler(double temperature, double top_p, std::uint64_t seed);

  std::uint32_t pick(std::span<const float> logits, std::uint64_t n);

 private:
  double temperature_, top_p_;
  std::uint64_t seed_;
  struct Candidate {
    double weight;
    std::uint32_t token;
  };
  std::vector<Candidate> candidates_;
};

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
  std::vector<std::string> notes;  // about the tokenizer and the template, for the user
};

// The prompts of the job's recipe, as tokens of its model. Throws AgreedError on all ranks if the file cannot be read,
// differs between ranks or holds no prompt; if a prompt leaves no room below data.seq_len; or if the model lacks a
// tokenizer or, for prompts that need one, the data's chat template. Collective.
Prompts read_prompts(const Job& job, comm::World& world);

}  // namespace strata::runtime
