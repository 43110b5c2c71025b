#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "launcher/commands/commands.h"
#include "launcher/rank/stop_signal.h"
#include "runtime/checkpoint/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/run/generation/generator.h"
#include "runtime/weights/weights.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// What was generated, and how fast.
struct Generated {
  std::vector<std::uint32_t> tokens;
  double prompt_s = 0, tokens_s = 0;  // tokens_s: of all but the first, which the prompt gives
  double tokens_per_s() const { return tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / tokens_s : 0; }
};

// A model that goes on from prompts, one after the other: what a prompt has in common with the sequence before it is
// not read again. Every rank calls it alike. What the constructor takes outlives it.
class Answerer {
 public:
  using Emit = std::function<void(std::uint32_t token)>;
  // threads: of this rank, unless --set says otherwise.
  Answerer(const GenerateOptions& options, const runtime::ModelFolder& folder, comm::World& world, int threads);

  // Up to --max-new-tokens tokens behind the prompt (not empty), or up to one of `ends`. tokenizer: for messages; may
  // be null. Throws AgreedError and Error as planning and running do.
  Generated answer(const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& ends,
                   const text::Tokenizer* tokenizer, const StopSignal& stop, const Emit& emit);

  // Of the last answer.
  const runtime::Job& job() const { return *job_; }
  const runtime::Executor& executor() const { return generator_->executor(); }
  int threads() const { return threads_; }

 private:
  void plan(std::size_t positions, const std::vector<std::uint32_t>& prompt, const text::Tokenizer* tokenizer);
  void check(const std::vector<std::uint32_t>& prompt, const text::Tokenizer* tokenizer) const;

  const GenerateOptions& options_;
  const runtime::ModelFolder& folder_;
  comm::World& world_;
  int threads_;
  std::optional<runtime::Job> job_;
  std::unique_ptr<runtime::WeightSource> weights_;
  std::optional<runtime::Generator> generator_;
  std::vector<std::uint32_t> read_;  // what the generator has read
};

}  // namespace strata::launcher
