#pragma once
// launcher/control/ is the control plane of a run: who is where, who is lost, and what people ask for, beside MPI and
// NCCL, which carry data. Its parts are named at Control below; open this first, then hub.h, attendant.h and watch.h.
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

// The control plane of a run, seen from one of its ranks: MPI and NCCL carry data, and this who is where, who is lost,
// and what people ask for. Its threads yield to the compute team and share no lock with the run. It is made of
//   listener, credentials, place    who may come, and where to;
//   control.proto, service, board   what people and tools ask, and what there is to tell;
//   client, ctl, top                strata ctl and strata top;
//   node_memory, node_stream, watch how ranks tell of themselves, and who finds that one is lost or stands still;
//   metrics                         Prometheus.
// gRPC is seen by service, client and node_stream alone.
class Control {
 public:
  // Collective. Opens what control.* of rank 0's recipe names, before anything else of the run starts; a mistake there
  // is thrown on all ranks alike. say: is told, on rank 0, what a user should know. The world outlives it.
  Control(const runtime::Recipe& recipe, comm::World& world, const Note& say);
  // Takes leave: nobody misses the rank, and once rank 0 has left nobody watches any more.
  ~Control();

  // What the rank is in from now on, outside a step.
  void enter(runtime::Phase phase);
  // The plan is made: rank 0 prints where the run is reached. The job outlives it.
  void planned(const runtime::Job& job);
  // checkpoint.dir is there, and this run's: control.json in it says where the run is reached. False: it cannot be
  // written.
  bool settle(const std::filesystem::path& folder);
  // Steps begin, of which some are done.
  void train(runtime::Trainer& trainer);

  // What is asked of the next step, for Trainer::step(); rank 0's are for all.
  std::uint64_t requests();
  // Whether a stop was asked for: bits as above, and told again.
  std::uint64_t stop_asked() const;
  // The same, for an evaluation, which ends with it.
  std::uint64_t take_stop();
  void stepped(const runtime::StepReport& report, const runtime::Executor& executor);
  // A round of an evaluation is done; and the evaluation is, if there was one.
  void evaluated_round();
  void evaluated();
  // What this rank computed in a step, the median of the newest ones, in ms; 0: not known.
  double compute_ms() const;
  // A checkpoint is durable; of the one thread that writes them.
  void saved(std::int64_t step, const std::filesystem::path& place);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::launcher::control
