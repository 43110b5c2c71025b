#include "device/ops/unpack.h"

#include "device/cpu/grain.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/numeric/nf4.h"

namespace strata::device::cpu {

void unpack(Lane& lane, StorageFormat format, const std::byte* packed, View out) {
  const auto kernel = unpack_kernels().nf4[index(out.dtype)];
  const std::size_t bytes = stored_bytes(format, kNf4Block);
  const std::size_t codes = format == StorageFormat::nf4 ? kNf4Codes : kNf4PlainCodes;
  submit(lane, [=](Team& team) {
    for_rows(team, out.size / kNf4Block, kNf4Block, [&](std::size_t block) {
      float scales[kNf4Scales];
      read_nf4_scales(format, packed + block * bytes, scales);
      kernel(scales, packed + block * bytes + codes, out.sub(block * kNf4Block, kNf4Block).data);
    });
  });
}

}  // namespace strata::device::cpu
