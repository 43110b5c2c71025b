#include "comm/nccl_communicator.h"

#include <thread>

#include "comm/collectives.h"
#include "comm/nccl_library.h"
#include "device/cuda/launch.h"
#include "device/error.h"

namespace strata::comm {
namespace {

constexpr auto kPoll = std::chrono::microseconds(50);

// What a rank owns of the range lies so far behind the range's start.
std::size_t place_of(const ShardedRange& range, int rank) {
  return range.piece(rank).begin - range.begin;
}

bool in_equal_pieces(const ShardedRange& range, int ranks) {
  return range.begin == 0 && range.end == range.shard_bytes * static_cast<std::size_t>(ranks);
}

}  // namespace

NcclCommunicator::NcclCommunicator(NcclWatch& watch, device::Lane& lane, int rank, int size, const ncclUniqueId& id,
                                   std::span<std::byte> arena)
    : watch_(watch),
      lane_(lane),
      token_(lane.abort()),
      name_(lane.name()),
      stream_(device::cuda::stream_of(lane)),
      rank_(rank),
      size_(size) {
  STRATA_CUDA(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle(nccl().ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig", 0);
  // Buffers that NCCL knows can be read by the other GPUs in place. Where it cannot, it says so by doing nothing.
  void* handle = nullptr;
  if (!arena.empty())
    settle(nccl().ncclCommRegister(comm_, arena.data(), arena.size(), &handle), "ncclCommRegister", arena.size());
  watch_.add(*this);
}

NcclCommunicator::~NcclCommunicator() {
  watch_.remove(*this);
  if (token_.is_set()) abort();
  const std::lock_guard lock(mutex_);
  if (comm_ && !aborted_) {
    // Finalizing is collective and may wait for others; all ranks end a run alike.
    (void)nccl().ncclCommFinalize(comm_);
    ncclResult_t state = ncclInProgress;
    while (nccl().ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state == ncclInProgress && !token_.is_set())
      std::this_thread::sleep_for(kPoll);
    (void)(state == ncclSuccess ? nccl().ncclCommDestroy(comm_) : nccl().ncclCommAbort(comm_));
  }
  (void)cudaEventDestroy(done_);
}

void NcclCommunicator::settle(ncclResult_t result, const char* call, std::size_t bytes) {
  while (result == ncclInProgress) {
    token_.throw_if_set();
    std::this_thread::sleep_for(kPoll);
    const std::lock_guard lock(mutex_);
    if (aborted_) throw device::Aborted("NCCL was aborted");
    ncclResult_t state = ncclSuccess;
    result = nccl().ncclCommGetAsyncError(comm_, &state);
    if (result == ncclSuccess) result = state;
  }
  if (result == ncclSuccess) return;
  token_.throw_if_set();
  fail(Exit::failed, "{} of {} bytes on lane {}, rank {} of {}, GPU {}: {} ({})", call, bytes, name_, rank_, size_,
       lane_.device().ordinal, nccl().ncclGetErrorString(result), nccl().ncclGetLastError(comm_));
}

void NcclCommunicator::end_group(const char* call, std::size_t bytes) {
  settle(nccl().ncclGroupEnd(), call, bytes);
  STRATA_CUDA(cudaEventRecord(done_, stream_));
  issued_.fetch_add(1, std::memory_order_release);
}

void NcclCommunicator::all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) {
  const std::byte* own = own_piece(range, rank_, shard);
  settle(nccl().ncclGroupStart(), "ncclGroupStart", 0);
  if (in_equal_pieces(range, size_)) {
    settle(nccl().ncclAllGather(own, out, range.shard_bytes, ncclUint8, comm_, stream_), "ncclAllGather",
           range.bytes());
  } else {
    // A tile's pieces differ, and some ranks have none: one broadcast each, in one group.
    for (int r = 0; r < size_; ++r) {
      const std::size_t bytes = range.piece(r).bytes();
      std::byte* to = out + place_of(range, r);
      if (bytes > 0)
        settle(nccl().ncclBroadcast(r == rank_ ? own : to, to, bytes, ncclUint8, r, comm_, stream_), "ncclBroadcast",
               bytes);
    }
  }
  end_group("ncclAllGather", range.bytes());
  sent_.all_gather += range.piece(rank_).bytes() * others();
}

void NcclCommunicator::all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                                  const std::byte** pieces) {
  const std::size_t own = range.piece(rank_).bytes();
  settle(nccl().ncclGroupStart(), "ncclGroupStart", 0);
  for (int r = 0; r < size_; ++r) {
    std::byte* from = staging + static_cast<std::size_t>(r) * own;
    pieces[r] = from;
    if (r == rank_) continue;
    if (own > 0) settle(nccl().ncclRecv(from, own, ncclUint8, r, comm_, stream_), "ncclRecv", own);
    const std::size_t bytes = range.piece(r).bytes();
    if (bytes > 0)
      settle(nccl().ncclSend(in + place_of(range, r), bytes, ncclUint8, r, comm_, stream_), "ncclSend", bytes);
  }
  end_group("ncclSend and ncclRecv", range.bytes());
  if (own > 0)
    device::cuda::copy(lane_, staging + static_cast<std::size_t>(rank_) * own, in + place_of(range, rank_), own);
  sent_.all_to_all += range.bytes() - own;
}

void NcclCommunicator::exchange(const std::byte* mine, std::size_t bytes, std::byte* all) {
  STRATA_CHECK_LE(bytes, kMaxExchange);
  settle(nccl().ncclGroupStart(), "ncclGroupStart", 0);
  settle(nccl().ncclAllGather(mine, all, bytes, ncclUint8, comm_, stream_), "ncclAllGather", bytes);
  end_group("ncclAllGather", bytes);
  sent_.consensus += bytes * others();
}

void NcclCommunicator::broadcast(std::byte* data, std::size_t bytes, int root) {
  STRATA_CHECK_LT(root, size_);
  settle(nccl().ncclGroupStart(), "ncclGroupStart", 0);
  settle(nccl().ncclBroadcast(data, data, bytes, ncclUint8, root, comm_, stream_), "ncclBroadcast", bytes);
  end_group("ncclBroadcast", bytes);
  if (root == rank_) sent_.broadcast += bytes * others();
}

std::string NcclCommunicator::trouble(std::chrono::seconds patience) {
  const std::lock_guard lock(mutex_);
  if (aborted_ || !comm_) return {};
  ncclResult_t state = ncclSuccess;
  (void)nccl().ncclCommGetAsyncError(comm_, &state);
  if (state != ncclSuccess && state != ncclInProgress)
    return fmt::format("NCCL on lane {}: {} ({})", name_, nccl().ncclGetErrorString(state),
                       nccl().ncclGetLastError(comm_));
  const std::uint64_t issued = issued_.load(std::memory_order_acquire);
  const auto now = std::chrono::steady_clock::now();
  if (issued != watched_ || cudaEventQuery(done_) == cudaSuccess) {
    watched_ = issued;
    since_ = now;
  } else if (now - since_ > patience) {
    return fmt::format("a collective of lane {} has not ended for {} s: another rank hangs or is cut off", name_,
                       patience.count());
  }
  return {};
}

void NcclCommunicator::abort() {
  const std::lock_guard lock(mutex_);
  if (aborted_ || !comm_) return;
  aborted_ = true;
  (void)nccl().ncclCommAbort(comm_);
}

}  // namespace strata::comm
