#include "comm/nccl/nccl.h"

#include <algorithm>
#include <utility>

#include "comm/agreement.h"
#include "comm/nccl/communicator.h"
#include "comm/nccl/library.h"
#include "comm/nccl/watch.h"
#include "device/cuda/check.h"
#include "device/cuda/context.h"

namespace strata::comm {
namespace {

std::string as_hex(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id{};
  STRATA_CHECK_EQ(text.size(), 2 * sizeof id.internal);
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

class NcclWorld final : public World {
 public:
  NcclWorld(std::unique_ptr<World> world, device::Device device, std::string version, std::chrono::milliseconds timeout)
      : world_(std::move(world)), version_(std::move(version)), watch_(*world_, device, timeout) {}

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  int node_size() const override { return world_->node_size(); }
  int node_rank() const override { return world_->node_rank(); }
  std::vector<int> nodes() const override { return world_->nodes(); }
  std::string describe() const override { return fmt::format("nccl {} over {}", version_, world_->describe()); }
  AbortToken& abort_token() override { return world_->abort_token(); }

  std::unique_ptr<Communicator> open(device::Lane& lane, const Group& group) override {
    if (lane.device().kind == device::Kind::cpu) return world_->open(lane, group);
    std::string text;
    agree(*world_, [&] {
      ncclUniqueId id{};
      if (group.index != 0) return;
      if (const ncclResult_t result = nccl().ncclGetUniqueId(&id); result != ncclSuccess)
        fail(Exit::failed, "ncclGetUniqueId: {}", nccl().ncclGetErrorString(result));
      text = as_hex(id);
    });
    const ncclUniqueId id = from_hex(world_->exchange(text)[static_cast<std::size_t>(group.members[0])]);
    auto communicator = std::make_unique<NcclCommunicator>(watch_, lane, group, id, world_->nodes());
    if (!arena_.empty()) register_arena(*communicator);
    return communicator;
  }

  std::vector<std::string> exchange(const std::string& mine) override { return world_->exchange(mine); }
  void leave() override { world_->leave(); }
  void check_peers() override { world_->check_peers(); }
  void report_failure(const std::string& cause, Exit code) override { world_->report_failure(cause, code); }
  Failure failure() override { return world_->failure(); }
  void when_lost(std::function<void(const Failure&)> print) override { world_->when_lost(std::move(print)); }

 protected:
  device::Arena allocate_host(std::size_t bytes) override { return world_->allocate(bytes); }
  device::Arena allocate_device(std::size_t bytes, device::Device device) override {
    device::Arena arena(bytes, device);
    arena_ = {arena.data(), arena.size()};
    return arena;
  }

 private:
  // NCCL requires that either all ranks register or none.
  void register_arena(NcclCommunicator& communicator) {
    const bool registered = communicator.register_buffers(arena_);
    const std::vector<std::string> all = world_->exchange(registered ? "yes" : "no");
    if (registered && std::find(all.begin(), all.end(), "no") != all.end()) communicator.deregister_buffers();
  }

  std::unique_ptr<World> world_;
  std::string version_;
  std::span<std::byte> arena_;
  NcclWatch watch_;
};

// A name that is unique among the GPUs of all nodes.
std::string name_of(device::Device device) {
  cudaDeviceProp properties{};
  STRATA_CUDA(cudaGetDeviceProperties(&properties, device.ordinal));
  return device::cuda::uuid_text(properties.uuid);
}

std::unique_ptr<World> refused(std::unique_ptr<World> world, Backend backend, const std::string& why) {
  if (backend == Backend::nccl)
    throw AgreedError(Exit::usage, fmt::format("comm.backend = nccl, but {}: use comm.backend = auto", why));
  return world;
}

}  // namespace

std::unique_ptr<World> nccl_world(std::unique_ptr<World> world, device::Device device, Backend backend,
                                  const std::function<void(const std::string& why)>& left_out,
                                  std::chrono::milliseconds timeout) {
  if (world->size() == 1) return refused(std::move(world), backend, "there is one rank");
  // A rank may have been started with another recipe, which is detected later, so all ranks take part in the exchange.
  const bool wanted = backend == Backend::automatic || backend == Backend::nccl;
  std::string gpu;
  agree(*world, [&] {
    if (wanted && device.kind != device::Kind::cpu) gpu = name_of(device);
  });
  std::vector<std::string> gpus = world->exchange(gpu);
  std::sort(gpus.begin(), gpus.end());
  if (gpus.front().empty()) return refused(std::move(world), backend, "not all ranks compute on GPUs");
  const auto do_without = [&](const std::string& why) {
    if (backend == Backend::automatic) left_out(why);
    return refused(std::move(world), backend, why);
  };
  if (const auto twice = std::adjacent_find(gpus.begin(), gpus.end()); twice != gpus.end())
    return do_without(fmt::format("ranks share {}", *twice));
  std::string version, missing;
  try {
    version = nccl_version();
  } catch (const Error& error) {
    missing = error.what();
  }
  for (const std::string& other : world->exchange(missing))
    if (!other.empty()) return do_without(other);
  const std::vector<std::string> versions = world->exchange(version);
  for (std::size_t r = 1; r < versions.size(); ++r)
    if (versions[r] != versions[0])
      throw AgreedError(
          Exit::usage,
          fmt::format("rank 0 found NCCL {} and rank {} NCCL {}: install the same version on all nodes, or "
                      "name one folder for all in STRATA_CUDA_LIBRARIES",
                      versions[0], r, versions[r]));
  return std::make_unique<NcclWorld>(std::move(world), device, version, timeout);
}

}  // namespace strata::comm
