#include "base/thread.h"

#include "base/error.h"

namespace strata {

void thread_refused(std::string_view name, const std::system_error& error) {
  fail(Exit::failed,
       "the system refused to start {}: {}; raise the process limit (ulimit -u, in a container --pids-limit), or "
       "use fewer threads (device.threads, --threads) or ranks",
       name, error.code().message());
}

}  // namespace strata
