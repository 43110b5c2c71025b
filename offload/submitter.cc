#include "offload/submitter.h"

namespace strata::offload {

std::unique_ptr<Submitter> open_submitter(const IoMode& mode, int descriptor, int queue_depth) {
  switch (mode.engine) {
    case Engine::io_uring:
      return open_uring(descriptor, queue_depth, mode.registered);
    case Engine::libaio:
      return open_libaio(descriptor, queue_depth);
    case Engine::threads:
      break;
  }
  return open_thread_pool(descriptor, queue_depth);
}

}  // namespace strata::offload
