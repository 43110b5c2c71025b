#include "runtime/job/seat.h"

#include <vector>

#include "base/error.h"
#include "device/backend.h"
#include "device/cpu/isa.h"
#include "device/gpu.h"

namespace strata::runtime {

Seat choose_seat(DeviceKind kind, int node_rank) {
  if (kind == DeviceKind::cpu) return {};
  device::Gpus found = device::find_gpus();
  if (!found.usable()) {
    if (kind == DeviceKind::automatic) return {};
    (void)device::backend(device::Kind::cuda);  // throws its own message if CUDA was not built
    fail(Exit::usage, "device.kind = cuda, but {}; strata doctor says more, and device.kind = cpu needs no GPU",
         found.problem.empty() ? "no GPU here can be used" : found.problem);
  }
  std::erase_if(found.gpus, [](const device::Gpu& gpu) { return !gpu.problem.empty(); });
  const device::Gpu& own = found.gpus[static_cast<std::size_t>(node_rank) % found.gpus.size()];
  return {own.device, own.uuid};
}

Seat planned_seat(DeviceKind kind) {
  if (kind != DeviceKind::cuda) return choose_seat(kind, 0);
  return {{device::Kind::cuda, 0}, {}};
}

std::string describe(const Seat& seat) {
  if (seat.device.kind == device::Kind::cpu) return device::cpu::describe();
  std::string name = "a GPU";
  for (const device::Gpu& gpu : device::find_gpus().gpus)
    if (gpu.device == seat.device) name = gpu.name;
  return fmt::format("{} (GPU {}{})", name, seat.device.ordinal,
                     seat.sharing > 1 ? fmt::format(", shared by {} ranks", seat.sharing) : "");
}

std::size_t device_memory(const Seat& seat) {
  for (device::Gpu& gpu : device::find_gpus().gpus) {
    if (gpu.device != seat.device) continue;
    device::probe_gpu(gpu);
    return (gpu.problem.empty() ? gpu.available : gpu.memory) / static_cast<std::size_t>(seat.sharing);
  }
  return 0;
}

}  // namespace strata::runtime
