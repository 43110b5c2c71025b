#include "device/ops/unpack.h"

#include "device/operations.h"

namespace strata::device {

void unpack(Lane& lane, StorageFormat format, const std::byte* packed, View out) {
  STRATA_CHECK(is_nf4(format));
  STRATA_CHECK_EQ(out.size % kNf4Block, 0u);
  lane.operations().unpack(lane, format, packed, out);
}

}  // namespace strata::device
