#pragma once
#include "comm/communicator.h"

namespace strata::launcher {

// While this object exists, SIGTERM, SIGHUP and SIGUSR1 ask for a stop after the current step and do not end the
// process. At most one may exist at a time, because a handler can reach only a global flag, which this object owns.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

// Whether any rank was asked to stop. Collective.
bool any_rank_stops(const StopSignal& stop, comm::World& world);

}  // namespace strata::launcher
