#pragma once

namespace strata::launcher {

// While one lives, SIGTERM, SIGHUP and SIGUSR1 ask for a stop after the step instead of ending the process. At
// most one at a time: a handler can only reach a global flag, which this owns.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace strata::launcher
