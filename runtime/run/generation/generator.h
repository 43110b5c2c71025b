#pragma once
// runtime/run/generation/ continues a prompt: the logits of the next token (here), the choice of a token (sampler.h),
// and the prompts that an evaluation answers (prompts.h).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "runtime/execute/executor.h"
#include "runtime/job/make_job.h"
#include "runtime/weights/weights.h"

namespace strata::runtime {

// Reads one sequence piece by piece and returns the logits of what may come next. Its plan consists of forwards only,
// whose blocks keep keys and values. Every rank makes the same calls, with the weights placed as the job says, and gets
// the same bits. Job (made for Purpose::generate) and world must outlive it.
class Generator {
 public:
  // Collective. algorithms: as agreed on (runtime/job/search/algorithms.h).
  Generator(const Job& job, comm::World& world, int threads, const WeightSource& weights,
            std::shared_ptr<const device::AlgorithmTable> algorithms = {});
  // Uses a training's weights, whenever the training is drained. `job` is Job::generation of the training's job.
  Generator(const Job& job, Executor& training);

  // Begins a new sequence.
  void restart();
  // Appends the tokens (at least one, all below the vocabulary) to the sequence; returns the logits of what follows,
  // [vocabulary], valid until the next call; nothing on a rank of a pipeline stage without the head.
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

}  // namespace strata::runtime
