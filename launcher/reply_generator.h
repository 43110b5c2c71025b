#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "launcher/commands/commands.h"
#include "launcher/rank/stop_signal.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/plan/job.h"
#include "runtime/run/generation/generator.h"
#include "runtime/weights/weights.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// The generated tokens, and the time that it took.
struct Generated {
  std::vector<std::uint32_t> tokens;
  double prompt_s = 0, tokens_s = 0;  // tokens_s excludes the first token, which the prompt yields
  double tokens_per_s() const { return tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / tokens_s : 0; }
};

// Generates answers to one prompt after another. If a prompt continues the previous sequence, it reads only the new
// part. Every rank makes the same calls. The constructor's arguments must outlive it.
class ReplyGenerator {
 public:
  using Emit = std::function<void(std::uint32_t token)>;
  // threads: those of this rank, unless --set overrides them.
  ReplyGenerator(const GenerateOptions& options, const runtime::ModelFolder& folder, comm::World& world, int threads);

  // Generates at most --max-new-tokens tokens after the prompt (which must not be empty), or up to one of `ends`.
  // tokenizer: for messages; may be null. Throws AgreedError and Error, as planning and running do.
  Generated answer(const std::vector<std::uint32_t>& prompt, const std::vector<std::uint32_t>& ends,
                   const text::Tokenizer* tokenizer, const StopSignal& stop, const Emit& emit);

  // The job, executor and threads of the last answer.
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
  std::vector<std::uint32_t> read_;  // the tokens that the generator has read
};

}  // namespace strata::launcher
