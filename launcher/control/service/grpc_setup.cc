#include "launcher/control/service/grpc_setup.h"

#include <fcntl.h>
#include <grpc/support/log.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/thread.h"

namespace strata::launcher::control {
namespace {

// A run with a watcher has ten gRPC threads and ten descriptors; each client adds more of both.
constexpr int kThreads = 14, kDescriptors = 24;

// Starts all threads at the same time, because gRPC has them at the same time.
void try_threads() {
  std::promise<void> done;
  const std::shared_future<void> over = done.get_future().share();
  std::vector<std::jthread> threads;  // declared before Over, so that they are joined after Over releases them
  threads.reserve(kThreads);
  struct Over {
    std::promise<void>& done;
    ~Over() { done.set_value(); }
  } const at_the_end{done};
  for (int i = 0; i < kThreads; ++i)
    threads.push_back(start_thread("a thread of the control service", [over] { over.wait(); }));
}

void try_descriptors() {
  std::vector<Descriptor> open;
  for (int i = 0; i < kDescriptors; ++i)
    if (open.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get() < 0)
      fail(Exit::failed,
           "the system refused to open a file for the control service: {}; raise the limit of open files (ulimit -n), "
           "or use control.listen = off",
           std::strerror(errno));
}

}  // namespace

void prepare_grpc() {
  if (!std::getenv("GRPC_VERBOSITY")) gpr_set_log_function([](gpr_log_func_args*) {});
  try_threads();
  try_descriptors();
}

}  // namespace strata::launcher::control
