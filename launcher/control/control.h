#pragma once
// launcher/control/ is the control plane of a run, next to MPI and NCCL, which carry data. It knows where ranks are,
// who is lost, and what people ask for. Its parts are listed at Control below; start here, then read hub.h,
// rank_monitor.h and watch.h.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/note.h"
#include "comm/communicator.h"
#include "runtime/execute/places.h"
#include "runtime/job/make_job.h"
#include "runtime/run/trainer.h"

namespace strata::launcher::control {

// The control plane of a run, seen from one of its ranks. Its threads yield to the compute team and share no lock with
// the run. Its parts:
//   listener, credentials, service_address  who may connect, and to which address;
//   control.proto, service, board           what people and tools can ask for, and the answers;
//   client, ctl, top                        strata ctl and strata top;
//   node_memory, node_stream, watch         how ranks report, and who finds that one is lost or stalled;
//   metrics                                 Prometheus.
// Only service, client, node_stream and grpc_setup see gRPC.
class Control {
 public:
  // Collective. Opens what control.* of rank 0's recipe names, before anything else of the run starts. A mistake there
  // is thrown alike on all ranks. `say` receives, on rank 0, notes for the user. The world must outlive it.
  Control(const runtime::Recipe& recipe, comm::World& world, const Note& say);
  // Says goodbye, so that nobody reports this rank as lost. Once rank 0 has left, nobody watches any more.
  ~Control();

  // The phase that the rank is in from now on, outside of steps.
  void enter(runtime::Phase phase);
  // The plan exists: rank 0 prints where the run is reached. The job must outlive this object.
  void planned(const runtime::Job& job, comm::World& world);
  // checkpoint.dir exists and belongs to this run: writes control.json there, which says where the run is reached.
  // False if that cannot be written.
  bool settle(const std::filesystem::path& folder);
  // Training begins, possibly after steps that are already done.
  void train(runtime::Trainer& trainer);

  // The requests for the next step, for Trainer::step(). Rank 0's count for all ranks.
  std::uint64_t requests();
  // Whether a stop was asked for, as the bits above. Asking again gives the same answer.
  std::uint64_t stop_asked() const;
  // The same for an evaluation, which ends when a stop was asked for.
  std::uint64_t take_stop();
  void stepped(const runtime::StepReport& report, const runtime::Executor& executor);
  // One round of an evaluation is done; evaluated(): all of it is, if there was one.
  void evaluated_round();
  void evaluated();
  // The median time, in ms, that this rank computed in its newest steps; 0 if not known.
  double compute_ms() const;
  // A checkpoint is durable. Only the thread that writes checkpoints calls this.
  void saved(std::int64_t step, const std::filesystem::path& place);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
