#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {

using namespace kinds;

std::vector<RecipeKey> memory_keys() {
  return {
      size("memory.device", STRATA_AT(memory.device), "device memory per rank; default: what is available"),
      size("memory.host", STRATA_AT(memory.host), "host memory per rank; default: what is available"),
      paths("memory.nvme", "a folder or a list of folders, one per drive", STRATA_AT(memory.nvme),
            "folders for the files of the nvme tier"),
      integer(
          "memory.prefetch", 0, 1 << 16, STRATA_AT(memory.prefetch),
          "units to gather ahead: at most this + 1 are gathered together, in addition to a tied embedding; with 0, the "
          "first unit's state on NVMe is not read before a step begins either"),
      size("memory.tile", STRATA_AT(memory.tile),
           "a unit whose parameters take more than this when they are gathered or uploaded is run in tiles; default: "
           "as few units as necessary for the step to fit"),
      choice<AccumulationOrder>(
          "memory.order",
          {{"auto", AccumulationOrder::automatic},
           {"horizontal", AccumulationOrder::horizontal},
           {"vertical", AccumulationOrder::vertical}},
          STRATA_AT(memory.order),
          "horizontal: micro-batch by micro-batch; vertical: unit by unit; auto: the order that needs less memory "
          "(device and host); the other one if it is predicted to be faster by 5% per 10% of extra memory and needs no "
          "more device memory than the same recipe with less state offloaded, or if it is the only one that fits"),
      flag("memory.verify", STRATA_AT(memory.verify),
           "keep a checksum of every page of the nvme tier, and compare it when the page is read"),
      choice<std::optional<offload::Engine>>("memory.io_engine",
                                             {{"auto", std::nullopt},
                                              {"io_uring", offload::Engine::io_uring},
                                              {"libaio", offload::Engine::libaio},
                                              {"threads", offload::Engine::threads}},
                                             STRATA_AT(memory.io_engine),
                                             "how the nvme tier is read and written; auto: the first that works"),
      flag_or_auto("memory.io_direct", STRATA_AT(memory.io_direct),
                   "bypass the page cache (O_DIRECT); auto: if the file system allows it"),
      flag_or_auto("memory.io_registered", STRATA_AT(memory.io_registered),
                   "io_uring's registered buffers; auto: if the locked memory limit allows them"),
  };
}

std::vector<RecipeKey> device_keys() {
  return {
      choice<DeviceKind>(
          "device.kind", {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}},
          STRATA_AT(device.kind), "the device that computes; auto: a GPU if one can be used, otherwise the CPU"),
      integer("device.threads", 1, 256, STRATA_AT(device.threads),
              "CPU threads of this rank; default: cores, or a CPU quota if that is less, / ranks on the node"),
  };
}

std::vector<RecipeKey> comm_keys() {
  return {
      choice<comm::Backend>(
          "comm.backend",
          {{"auto", comm::Backend::automatic},
           {"solo", comm::Backend::solo},
           {"mpi", comm::Backend::mpi},
           {"nccl", comm::Backend::nccl}},
          STRATA_AT(comm.backend),
          "the backend that connects the ranks; auto: NCCL between GPUs; solo: one rank, without mpirun"),
      choice<comm::Transport>("comm.transport",
                              {{"auto", comm::Transport::automatic},
                               {"shared", comm::Transport::shared_memory},
                               {"messages", comm::Transport::messages}},
                              STRATA_AT(comm.transport), "transport between ranks of one node"),
  };
}

}  // namespace strata::runtime
