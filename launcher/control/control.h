#pragma once
// launcher/control/ is the control plane of a run, separate from MPI and NCCL, which carry data. It tracks where each
// rank is, detects lost nodes, and handles users' requests. The parts are listed at Control below. Start here, then
// read hub.h, rank_monitor.h and watch.h.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/progress.h"
#include "comm/communicator.h"
#include "runtime/execute/rank_progress.h"
#include "runtime/plan/job.h"
#include "runtime/run/trainer.h"

namespace strata::launcher::control {

// The control plane of a run, seen from one of its ranks. Its threads yield to the compute team and share no lock with
// the run. Its parts:
//   listener, credentials, service_address  who may connect, and to which address;
//   control.proto, service, board           the requests of users and tools, and the answers;
//   client, ctl, top                        strata ctl and strata top;
//   node_memory, node_stream, watch         how ranks report, and how a lost or stalled one is found;
//   metrics                                 Prometheus.
// Only service, client, node_stream and grpc_setup include gRPC.
class Control {
 public:
  // Collective. Opens the sockets that control.* of rank 0's recipe names, before anything else of the run starts. If
  // the recipe is wrong, all ranks throw the same error. On rank 0, `say` receives notes for the user. The world must
  // outlive it.
  Control(const runtime::Recipe& recipe, comm::World& world, const Note& say);
  // Announces that this rank leaves, so that it is not reported as lost. Once rank 0 has left, no rank is watched.
  ~Control();

  // Sets the phase that the rank is in from now on, outside steps.
  void enter(runtime::Phase phase);
  // Called when the plan exists. Rank 0 prints the address of the service. The job must outlive this object.
  void planned(const runtime::Job& job, comm::World& world);
  // Called when checkpoint.dir exists and belongs to this run. Writes control.json there, with the address of the
  // service. False if the file cannot be written.
  bool write_address(const std::filesystem::path& folder);
  // Called when training begins, possibly after steps of earlier runs.
  void train(runtime::Trainer& trainer);

  // The requests for the next step, for Trainer::step(). Those of rank 0 apply to all ranks.
  std::uint64_t requests();
  // The requests to stop, as the bits kStop and kStopAtOnce of runtime/run/trainer.h; 0 if there is none. Not cleared.
  std::uint64_t stop_requested() const;
  // The same for an evaluation, which ends when a stop has been requested.
  std::uint64_t take_stop();
  void stepped(const runtime::StepReport& report, const runtime::Executor& executor);
  // Called after each round of an evaluation. evaluated() is called after a step's evaluation, or if there was none.
  void evaluated_round();
  void evaluated();
  // The median compute time of this rank's newest steps in ms; 0 if unknown.
  double compute_ms() const;
  // Called when a checkpoint is durable, only by the thread that writes checkpoints.
  void saved(std::int64_t step, const std::filesystem::path& place);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
