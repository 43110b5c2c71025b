#include "runtime/execute/executor.h"
#include "runtime/tasks/collectives/activations.h"
#include "runtime/tasks/collectives/gather.h"
#include "runtime/tasks/collectives/reduce.h"
#include "runtime/tasks/copy.h"
#include "runtime/tasks/loss.h"
#include "runtime/tasks/norm.h"
#include "runtime/tasks/pass.h"
#include "runtime/tasks/stage_link.h"
#include "runtime/tasks/step_boundary.h"
#include "runtime/tasks/unpack.h"
#include "runtime/tasks/update.h"

namespace strata::runtime {

RunTask run_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::gather:
      return Gather::run;
    case TaskKind::unpack:
      return Unpack::run;
    case TaskKind::forward:
    case TaskKind::recompute:
      return Forward::run;
    case TaskKind::loss:
      return Loss::run;
    case TaskKind::backward:
      return Backward::run;
    case TaskKind::exchange:
      return Exchange::run;
    case TaskKind::gather_rows:
      return GatherRows::run;
    case TaskKind::take_rows:
      return TakeRows::run;
    case TaskKind::send:
      return SendToStage::run;
    case TaskKind::receive:
      return ReceiveFromStage::run;
    case TaskKind::accumulate:
      return Accumulate::run;
    case TaskKind::round:
      return Round::run;
    case TaskKind::node_sum:
      return NodeSum::run;
    case TaskKind::reduce:
      return ReduceGradient::run;
    case TaskKind::combine:
      return Combine::run;
    case TaskKind::norm:
      return Norm::run;
    case TaskKind::gather_sums:
      return GatherSums::run;
    case TaskKind::consensus:
      return Consensus::run;
    case TaskKind::update:
      return Update::run;
    case TaskKind::gather_updated:
      return GatherUpdated::run;
    case TaskKind::upload:
    case TaskKind::download:
    case TaskKind::read:
    case TaskKind::write:
      return Copy::run;
    case TaskKind::save:
      return Save::run;
    case TaskKind::publish:
      return Publish::run;
    case TaskKind::copy_scalars:
    case TaskKind::host_write:
    case TaskKind::host_read:
      break;
  }
  return nullptr;
}

}  // namespace strata::runtime
