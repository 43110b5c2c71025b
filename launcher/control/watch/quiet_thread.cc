#include "launcher/control/watch/quiet_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

namespace strata::launcher::control {

void be_quiet(const char* name) {
  sigset_t all;
  sigfillset(&all);
  // Those that a thread's own mistake raises stay, and so do profilers'.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF}) sigdelset(&all, signal);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), name);
  // Of this thread alone, as Linux has it.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

}  // namespace strata::launcher::control
