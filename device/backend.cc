#include "device/backend.h"

#include "base/error.h"

namespace strata::device {

const Backend& backend(Kind kind) {
  if (kind == Kind::cpu) return cpu_backend();
  const Backend* cuda = cuda_backend();
  if (!cuda)
    fail(Exit::usage,
         "device.kind = cuda, but this strata was built without CUDA: build it with nvcc on the path, or use "
         "device.kind = cpu");
  return *cuda;
}

}  // namespace strata::device
