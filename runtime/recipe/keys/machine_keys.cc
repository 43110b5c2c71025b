#include "runtime/recipe/keys/machine_keys.h"

#include <utility>

#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

constexpr std::int64_t kMostRanks = 1 << 20;

template <typename At>
RecipeKey tier(std::string name, At at, std::string meaning) {
  return choice<Tier>(std::move(name), {{"device", Tier::device}, {"host", Tier::host}, {"nvme", Tier::nvme}}, {}, at,
                      std::move(meaning));
}

template <typename At>
RecipeKey ranks_of_group(std::string name, At at, std::string meaning) {
  auto set = [at](Recipe& recipe, const Value& v, const fs::path&) {
    const auto* text = std::get_if<std::string>(&v.value);
    const auto* number = std::get_if<std::int64_t>(&v.value);
    if (number && *number > 0 && *number <= kMostRanks)
      at(recipe) = *number;
    else if (text && *text == "all")
      at(recipe) = kAllRanks;
    else if (text && *text == "node")
      at(recipe) = kRanksOfANode;
    else
      return false;
    return true;
  };
  auto text = [at](const Recipe& recipe) {
    return at(recipe) == kAllRanks       ? json_string("all")
           : at(recipe) == kRanksOfANode ? json_string("node")
                                         : text_of(at(recipe));
  };
  return {std::move(name),
          fmt::format("\"all\", \"node\" or an integer from 1 to {}", kMostRanks),
          std::move(meaning),
          set,
          text,
          {}};
}

}  // namespace

std::vector<RecipeKey> zero_keys() {
  return {
      integer("zero.stage", 0, 3, STRATA_AT(zero.stage),
              "what is sharded over the ranks: 1 optimizer, 2 also gradients, 3 also parameters"),
      tier("zero.parameters", STRATA_AT(zero.parameters), "tier of the parameters"),
      tier("zero.gradients", STRATA_AT(zero.gradients), "tier of the gradients"),
      tier("zero.optimizer", STRATA_AT(zero.optimizer), "tier of masters and moments"),
      tier("zero.activations", STRATA_AT(zero.activations), "tier of the kept activations"),
      ranks_of_group(
          "zero.parameters_group", STRATA_AT(zero.parameters_group),
          "stage 3: number of neighbouring ranks that together hold all parameters and gather them from each "
          "other; node: the ranks of a node; must divide zero.gradients_group; all: equal to it"),
      ranks_of_group("zero.gradients_group", STRATA_AT(zero.gradients_group),
                     "stages 2 and 3: the same for gradient sums, of which each group holds a copy; must divide "
                     "zero.optimizer_group; all: equal to it"),
      ranks_of_group("zero.optimizer_group", STRATA_AT(zero.optimizer_group),
                     "stages 1 to 3: the same for masters and moments; each group updates its own copy"),
  };
}

std::vector<RecipeKey> memory_keys() {
  return {
      size("memory.device", STRATA_AT(memory.device), "device memory per rank; default: what is available"),
      size("memory.host", STRATA_AT(memory.host), "host memory per rank; default: what is available"),
      paths("memory.nvme", "a folder or a list of folders, one per drive", STRATA_AT(memory.nvme),
            "where the nvme tier keeps its files"),
      integer("memory.prefetch", 0, 1 << 16, STRATA_AT(memory.prefetch),
              "units looked ahead: at most this + 1 are gathered at once, in addition to a tied embedding; with 0, the "
              "first unit's state on NVMe is not read before a step begins either"),
      size("memory.tile", STRATA_AT(memory.tile),
           "a unit whose parameters take more than this when they are gathered or uploaded is run in tiles; default: "
           "as few units as necessary for the step to fit"),
      choice<AccumulationOrder>(
          "memory.order",
          {{"auto", AccumulationOrder::automatic},
           {"horizontal", AccumulationOrder::horizontal},
           {"vertical", AccumulationOrder::vertical}},
          {}, STRATA_AT(memory.order),
          "micro-batch by micro-batch, or unit by unit; auto: the one that needs less memory (device and host), unless "
          "the other is predicted to be faster by 5% for each 10% of memory, and needs no more of the device than a "
          "recipe with less state in other tiers (zero.*); or the only one that fits"),
      flag("memory.verify", STRATA_AT(memory.verify),
           "keep a checksum of every page of the nvme tier, and compare it when the page is read"),
      choice<std::optional<offload::Engine>>("memory.io_engine",
                                             {{"auto", std::nullopt},
                                              {"io_uring", offload::Engine::io_uring},
                                              {"libaio", offload::Engine::libaio},
                                              {"threads", offload::Engine::threads}},
                                             {}, STRATA_AT(memory.io_engine),
                                             "how the nvme tier is read and written; auto: the first that works"),
      flag_or_auto("memory.io_direct", STRATA_AT(memory.io_direct),
                   "bypass the page cache (O_DIRECT); auto: if the file system allows it"),
      flag_or_auto("memory.io_registered", STRATA_AT(memory.io_registered),
                   "io_uring's registered buffers; auto: if the locked memory limit allows them"),
  };
}

std::vector<RecipeKey> device_keys() {
  return {
      choice<DeviceKind>("device.kind",
                         {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}}, {},
                         STRATA_AT(device.kind), "what computes; auto: a GPU if one can be used, otherwise the CPU"),
      integer("device.threads", 1, 256, STRATA_AT(device.threads),
              "CPU threads of this rank; default: cores, or a CPU quota if that is less, / ranks on the node"),
  };
}

std::vector<RecipeKey> comm_keys() {
  return {
      choice<comm::Backend>("comm.backend",
                            {{"auto", comm::Backend::automatic},
                             {"solo", comm::Backend::solo},
                             {"threads", comm::Backend::threads},
                             {"mpi", comm::Backend::mpi},
                             {"nccl", comm::Backend::nccl}},
                            {}, STRATA_AT(comm.backend),
                            "what connects the ranks; auto: NCCL between GPUs; solo: one rank, without mpirun"),
      choice<comm::Transport>("comm.transport",
                              {{"auto", comm::Transport::automatic},
                               {"shared", comm::Transport::shared_memory},
                               {"messages", comm::Transport::messages}},
                              {}, STRATA_AT(comm.transport), "transport between ranks of one node"),
  };
}

}  // namespace strata::runtime
