#include "offload/swap_lane.h"

#include "device/cpu/lane_impl.h"

namespace strata::offload {

void read(device::Lane& lane, Swap& swap, std::uint64_t offset, device::View to) {
  device::cpu::submit(lane, [&swap, offset, to](device::cpu::Team&) { swap.read(offset, {to.data, to.bytes()}); });
}

void write(device::Lane& lane, Swap& swap, std::uint64_t offset, device::ConstView from) {
  device::cpu::submit(lane, [&swap, offset, from](device::cpu::Team&) {
    swap.write(offset, {from.data, from.bytes()});
  });
}

}  // namespace strata::offload
