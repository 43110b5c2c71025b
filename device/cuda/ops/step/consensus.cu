#include <cmath>

#include "device/cuda/launch.h"
#include "device/ops/step/consensus.h"

namespace strata::device::cuda {
namespace {

constexpr int kThreads = 128;

// Copies words of 8 bytes: all parts of a message consist of these.
__device__ void copy_words(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = threadIdx.x; i < bytes / 8; i += kThreads)
    static_cast<std::uint64_t*>(to)[i] = static_cast<const std::uint64_t*>(from)[i];
}

__global__ void pack(const ExactSum* squares, const ExactSum* loss, const std::uint64_t* requests,
                     StepMessage* message) {
  copy_words(&message->squares, squares, sizeof(ExactSum));
  copy_words(&message->loss, loss, sizeof(ExactSum));
  if (threadIdx.x == 0) message->requests = *requests;
}

__global__ void resolve(const StepMessage* messages, std::size_t ranks, StepScalars* scalars, StepResult* result) {
  __shared__ std::uint64_t memory[sizeof(StepMessage) / 8];
  __shared__ double rounded[2];
  auto& all = *reinterpret_cast<StepMessage*>(memory);
  copy_words(&all, messages, sizeof(StepMessage));
  __syncthreads();
  // One thread per sum.
  if (threadIdx.x < 2) {
    const auto part = threadIdx.x == 0 ? &StepMessage::squares : &StepMessage::loss;
    for (std::size_t r = 1; r < ranks; ++r) (all.*part).merge(messages[r].*part);
    rounded[threadIdx.x] = (all.*part).round_in_place();
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (std::size_t r = 1; r < ranks; ++r) all.requests += messages[r].requests;
  const double norm = sqrt(rounded[0]) * static_cast<double>(scalars->unscale), loss = rounded[1];
  const double most = static_cast<double>(scalars->max_grad_norm), ratio = most / (norm + 1e-6);
  const double clip = most > 0 && ratio < 1.0 ? ratio : 1.0;
  scalars->gradient_factor = scalars->unscale * static_cast<float>(clip);
  scalars->skip = std::isfinite(norm) && std::isfinite(loss) ? 0 : 1;
  *result = {loss, norm, all.requests};
}

}  // namespace

void pack_message(Lane& lane, const ExactSum* squares, const ExactSum* loss, const std::uint64_t* requests,
                  StepMessage* message) {
  launch(lane, 1, kThreads, 0, pack, squares, loss, requests, message);
}

void resolve_step(Lane& lane, const StepMessage* messages, std::size_t ranks, StepScalars* scalars,
                  StepResult* result) {
  launch(lane, 1, kThreads, 0, resolve, messages, ranks, scalars, result);
}

}  // namespace strata::device::cuda
