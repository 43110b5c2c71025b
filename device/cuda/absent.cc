#include "device/backend.h"

namespace strata::device {

const Backend* cuda_backend() {
  return nullptr;
}

}  // namespace strata::device
