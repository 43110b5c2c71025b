#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/algorithm_table.h"
#include "device/cpu/lane_impl.h"
#include "device/cuda/context.h"
#include "device/cuda/flags.h"
#include "device/cuda/libraries/cublaslt.h"
#include "device/cuda/libraries/cudnn_attention.h"
#include "device/lane_impl.h"

namespace strata::device::cuda {

// The lane of a GPU: a stream into which the issuing thread queues work itself. Host work in the lane's order runs in a
// separate host lane, created when it is first needed. Stream and host take turns through flags.
class StreamLane final : public Lane::Impl {
 public:
  StreamLane(std::string name, Device device, int threads, int rank, AbortToken& abort);
  ~StreamLane() override;

  int threads() const override { return threads_; }
  void record(Event::State& event) override;
  void wait(Event::State& event) override;
  void stamp(std::int64_t* where) override;
  // After an abort, waits some seconds for the stream to drain, so that memory is not freed while the stream uses it.
  void synchronize() override;
  void begin_range(const char* name) override;
  void end_range() override;
  cpu::HostLane& begin_host_work() override;
  void end_host_work() override;
  void use_algorithms(const std::shared_ptr<const AlgorithmTable>& table) override { algorithms_ = table; }

  // The stream to queue into; makes the lane's device current for the calling thread.
  cudaStream_t stream();
  // For products: the library's handle for this lane, created when it is first needed, and the algorithms to use, or
  // null.
  cublasLtHandle_t cublaslt_handle();
  const AlgorithmTable* algorithms() const { return algorithms_.get(); }
  // Created when it is first needed; null if the program is built without cuDNN.
  CudnnAttention* cudnn_attention();

 private:
  void require_running(const char* what);
  void drain();
  void resolve_stamps();

  const int threads_;
  Stream stream_;
  Flags flags_;
  CublasLtHandle cublaslt_;
  std::unique_ptr<CudnnAttention> cudnn_attention_;
  std::shared_ptr<const AlgorithmTable> algorithms_;

  // The times requested since the last synchronize(): where to write each, and a CUDA event for each, kept for reuse.
  std::vector<std::int64_t*> stamps_;
  std::vector<StreamEvent> stamp_events_;
  StreamEvent clock_;

  // The host's turns: the newest one at which the stream has arrived, and the newest that the host has finished.
  // Declared before host_, which uses them.
  Flags turn_flags_;
  Flag arrived_, finished_;
  std::uint64_t turns_ = 0;
  std::unique_ptr<cpu::HostLane> host_;
};

// An event of lanes of a GPU and of the host: a CUDA event between streams, flags between streams and the host. So a
// host lane never calls CUDA, which avoids a deadlock: the call could wait for the issuing thread, which CUDA may block
// (while it loads a kernel, or while a stream is full) until that lane's work is done.
class EventTwin final : public Event::Twin {
 public:
  EventTwin(Device device, bool host_waits);

  bool reached(std::uint64_t n) override { return recorded_->get() >= n; }
  void signal(std::uint64_t n) override;

  // The issuing thread calls these three.
  void record(cudaStream_t stream, std::uint64_t n);
  bool host_waits() const { return recorded_.has_value(); }
  cudaEvent_t newest() const { return event_.get(); }
  // Sets the flag once the host lane has reached record n. Call it under the state's mutex.
  void set_at(std::uint64_t n, Flag flag) { waiting_.push_back({n, std::move(flag)}); }

 private:
  struct Waiting {
    std::uint64_t record;
    Flag flag;
  };

  StreamEvent event_;
  std::optional<Flag> recorded_;  // the newest record that a stream has reached; none if the host does not wait
  std::vector<Waiting> waiting_;
};

}  // namespace strata::device::cuda
