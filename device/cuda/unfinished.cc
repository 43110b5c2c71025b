#include "device/backend.h"

namespace strata::device {

// While operations are missing.
const Backend* cuda_backend() {
  return nullptr;
}

}  // namespace strata::device
