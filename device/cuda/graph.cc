#include "device/graph.h"

#include "device/cuda/backend.h"
#include "device/cuda/check.h"
#include "device/cuda/launch.h"

namespace strata::device::cuda {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept { (void)cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const noexcept { (void)cudaGraphExecDestroy(graph); }
};
using CapturedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;
using ExecutableGraph = std::unique_ptr<CUgraphExec_st, DestroyGraph>;

class StreamGraph final : public Graph::Impl {
 public:
  explicit StreamGraph(const CapturedGraph& captured) {
    cudaGraphExec_t executable = nullptr;
    STRATA_CUDA(cudaGraphInstantiate(&executable, captured.get(), 0));
    executable_.reset(executable);
  }
  void launch(Lane& lane) override { STRATA_CUDA(cudaGraphLaunch(executable_.get(), stream_of(lane))); }

 private:
  ExecutableGraph executable_;
};

// Takes the stream, and all streams that joined it, out of capture.
CapturedGraph end_capture(cudaStream_t stream) {
  cudaGraph_t captured = nullptr;
  STRATA_CUDA(cudaStreamEndCapture(stream, &captured));
  return CapturedGraph(captured);
}

}  // namespace

// Relaxed: other threads continue to copy and query, and libraries that allocate or load code late may do so.
std::unique_ptr<Graph::Impl> capture(Lane& lane, const std::function<void()>& issue) {
  cudaStream_t const stream = stream_of(lane);
  STRATA_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  try {
    issue();
  } catch (...) {
    cudaGraph_t unfinished = nullptr;
    if (cudaStreamEndCapture(stream, &unfinished) == cudaSuccess) (void)cudaGraphDestroy(unfinished);
    (void)cudaGetLastError();  // ending the capture may report the failed call again
    throw;
  }
  return std::make_unique<StreamGraph>(end_capture(stream));
}

}  // namespace strata::device::cuda
