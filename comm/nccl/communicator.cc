#include "comm/nccl/communicator.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/nccl/library.h"
#include "device/cuda/context.h"
#include "device/cuda/launch.h"

namespace strata::comm {
namespace {

// NCCL accepts a collective within tens of microseconds, and a sleep would double that. Connecting takes longer.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr auto kPoll = std::chrono::microseconds(50);

// The offset of `rank`'s part in the range.
std::size_t place_of(const ShardedRange& range, int rank) {
  return range.owned(rank).begin - range.begin;
}

bool in_equal_pieces(const ShardedRange& range, int ranks) {
  return range.begin == 0 && range.end == range.shard_bytes * static_cast<std::size_t>(ranks);
}

}  // namespace

NcclCommunicator::NcclCommunicator(NcclWatch& watch, device::Lane& lane, const Group& group, std::span<const int> nodes)
    : watch_(watch),
      lane_(lane),
      device_(lane.device()),
      token_(lane.abort()),
      name_(lane.name()),
      stream_(device::cuda::stream_of(lane)),
      rank_(group.index),
      size_(group.size()),
      places_(group.places()),
      levels_(group, nodes),
      exceptions_(std::uncaught_exceptions()),
      ended_(device::cuda::take_flag()),
      since_(Clock::now()) {
  watch_.add(*this);
}

// An exception thrown here runs the destructor, because the delegated constructor has finished.
NcclCommunicator::NcclCommunicator(NcclWatch& watch, device::Lane& lane, const Group& group, const ncclUniqueId& id,
                                   std::span<const int> nodes)
    : NcclCommunicator(watch, lane, group, nodes) {
  device::cuda::use(device_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl().ncclCommInitRankConfig(&connecting_, size_, id, rank_, &config);
  {
    const std::lock_guard lock(mutex_);
    comm_ = std::atomic_ref(connecting_).load(std::memory_order_acquire);
  }
  complete(result, "ncclCommInitRankConfig", 0);
}

bool NcclCommunicator::register_buffers(std::span<std::byte> buffers) {
  const auto add = [&](ncclComm_t comm) {
    return nccl().ncclCommRegister(comm, buffers.data(), buffers.size(), &registered_);
  };
  return with_comm(add) == ncclSuccess && registered_;
}

void NcclCommunicator::deregister_buffers() {
  (void)with_comm([&](ncclComm_t comm) { return nccl().ncclCommDeregister(comm, registered_); });
  registered_ = nullptr;
}

NcclCommunicator::~NcclCommunicator() {
  // finalize() waits for the other ranks, which do not leave if only this rank unwinds.
  if (!token_.is_set() && std::uncaught_exceptions() == exceptions_) finalize();
  bool left = false;
  {
    const std::lock_guard lock(mutex_);
    left = comm_ == nullptr;
  }
  // Call this even if the watch has taken the communicator: the watch may still be busy, and the objects that NCCL uses
  // are destroyed next.
  if (!left || token_.is_set()) watch_.abort_all();
  watch_.remove(*this);
}

void NcclCommunicator::finalize() noexcept {
  try {
    const ncclResult_t result = with_comm([](ncclComm_t comm) { return nccl().ncclCommFinalize(comm); });
    complete(result == ncclSuccess ? ncclInProgress : result, "ncclCommFinalize", 0);
    // Take it from the watch first: the call may wait for the GPU, and so for an operation that the watch must abort.
    if (ncclComm_t const comm = take()) (void)nccl().ncclCommDestroy(comm);
  } catch (const Aborted&) {
  } catch (const std::exception& error) {
    token_.set({rank_, error.what(), exit_code(error)});
  }
}

ncclComm_t NcclCommunicator::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(comm_, nullptr);
}

template <typename F>
ncclResult_t NcclCommunicator::with_comm(const F& f) {
  const std::lock_guard lock(mutex_);
  if (!comm_) {
    token_.throw_if_set();
    throw Aborted("NCCL was aborted");
  }
  return f(comm_);
}

std::string NcclCommunicator::explain(ncclResult_t result) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{} ({})", nccl().ncclGetErrorString(result), nccl().ncclGetLastError(comm_));
}

void NcclCommunicator::complete(ncclResult_t result, const char* call, std::size_t bytes) {
  for (const auto begin = Clock::now(); result == ncclInProgress;) {
    token_.throw_if_set();
    if (Clock::now() - begin > kSpin)
      std::this_thread::sleep_for(kPoll);
    else
      __builtin_ia32_pause();
    result = with_comm([](ncclComm_t comm) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = nccl().ncclCommGetAsyncError(comm, &state);
      return asked == ncclSuccess ? state : asked;
    });
  }
  if (result == ncclSuccess) return;
  token_.throw_if_set();
  fail(Exit::failed, "{} of {} bytes on lane {}, rank {} of {}, GPU {}: {}", call, bytes, name_, rank_, size_,
       device_.ordinal, explain(result));
}

// Holds the mutex from the start of the group to its end, because the watch may free the ncclComm_t between any two
// NCCL calls, and the group keeps it until its end. NCCL does not block in a group, and is polled without the mutex.
template <typename F>
void NcclCommunicator::issue(const char* call, std::size_t bytes, const F& calls) {
  const auto group = [&](ncclComm_t comm) {
    if (const ncclResult_t result = nccl().ncclGroupStart(); result != ncclSuccess) return result;
    const ncclResult_t result = calls(comm);
    const ncclResult_t end = nccl().ncclGroupEnd();  // always: otherwise this thread's next calls would join the group
    return result == ncclSuccess ? end : result;
  };
  complete(with_comm(group), call, bytes);
  std::uint64_t n = 0;
  {
    const std::lock_guard lock(mutex_);
    n = ++issued_;
  }
  device::cuda::use(device_);
  device::cuda::write(stream_, ended_, n);  // without the mutex: the call may wait for room in the stream
}

void NcclCommunicator::all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out) {
  const std::byte* own = own_piece(range, rank_, shard);
  issue("ncclAllGather", range.bytes(), [&](ncclComm_t comm) {
    if (in_equal_pieces(range, size_))
      return nccl().ncclAllGather(own, out, range.shard_bytes, ncclUint8, comm, stream_);
    // A tile's pieces have different sizes, and some ranks have none, so each piece is broadcast.
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < size_ && result == ncclSuccess; ++r) {
      const std::size_t bytes = range.owned(r).bytes();
      std::byte* to = out + place_of(range, r);
      if (bytes > 0) result = nccl().ncclBroadcast(r == rank_ ? own : to, to, bytes, ncclUint8, r, comm, stream_);
    }
    return result;
  });
  sent_.all_gather += range.owned(rank_).bytes() * others();
  sent_.between_nodes += levels_.gathered(range.owned(rank_).bytes());
}

void NcclCommunicator::all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                                  const std::byte** pieces) {
  const std::size_t own = range.owned(rank_).bytes();
  const auto received = [&](int r) {
    return staging + static_cast<std::size_t>(places_[static_cast<std::size_t>(r)]) * own;
  };
  for (int r = 0; r < size_; ++r) pieces[r] = staging + static_cast<std::size_t>(r) * own;
  issue("ncclSend and ncclRecv", range.bytes(), [&](ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < size_ && result == ncclSuccess; ++r) {
      if (r == rank_) continue;
      std::byte* from = received(r);
      if (own > 0) result = nccl().ncclRecv(from, own, ncclUint8, r, comm, stream_);
      const std::size_t bytes = range.owned(r).bytes();
      if (bytes > 0 && result == ncclSuccess)
        result = nccl().ncclSend(in + place_of(range, r), bytes, ncclUint8, r, comm, stream_);
    }
    return result;
  });
  if (own > 0) device::cuda::copy(lane_, received(rank_), in + place_of(range, rank_), own);
  sent_.all_to_all += range.bytes() - own;
  sent_.between_nodes += levels_.exchanged(range);
}

void NcclCommunicator::exchange(const std::byte* mine, std::size_t bytes, std::byte* all) {
  STRATA_CHECK_LE(bytes, kMaxExchange);
  issue("ncclAllGather", bytes,
        [&](ncclComm_t comm) { return nccl().ncclAllGather(mine, all, bytes, ncclUint8, comm, stream_); });
  sent_.consensus += bytes * others();
  sent_.between_nodes += levels_.sent_to_all(bytes);
}

void NcclCommunicator::broadcast(std::byte* data, std::size_t bytes, int root) {
  STRATA_CHECK_LT(root, size_);
  issue("ncclBroadcast", bytes,
        [&](ncclComm_t comm) { return nccl().ncclBroadcast(data, data, bytes, ncclUint8, root, comm, stream_); });
  if (root != rank_) return;
  sent_.broadcast += bytes * others();
  sent_.between_nodes += levels_.sent_to_all(bytes);
}

void NcclCommunicator::send(const std::byte* data, std::size_t bytes, int to) {
  STRATA_CHECK(is_peer(to));
  if (bytes == 0) return;
  issue("ncclSend", bytes, [&](ncclComm_t comm) { return nccl().ncclSend(data, bytes, ncclUint8, to, comm, stream_); });
  sent_.point_to_point += bytes;
  sent_.between_nodes += levels_.sent(bytes, to);
}

void NcclCommunicator::receive(std::byte* data, std::size_t bytes, int from) {
  STRATA_CHECK(is_peer(from));
  if (bytes == 0) return;
  issue("ncclRecv", bytes,
        [&](ncclComm_t comm) { return nccl().ncclRecv(data, bytes, ncclUint8, from, comm, stream_); });
}

std::string NcclCommunicator::find_failure(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (!comm_) return {};
  ncclResult_t state = ncclSuccess;
  (void)nccl().ncclCommGetAsyncError(comm_, &state);
  if (state != ncclSuccess && state != ncclInProgress)
    return fmt::format("NCCL on lane {}: {} ({})", name_, nccl().ncclGetErrorString(state),
                       nccl().ncclGetLastError(comm_));
  const auto now = Clock::now();
  const std::uint64_t ended = ended_.get();
  const bool all_ended = ended == issued_;
  if (std::exchange(seen_, ended) != ended || (all_ended && state == ncclSuccess)) since_ = now;
  if (now - since_ <= timeout) return {};
  const double seconds = std::chrono::duration<double>(timeout).count();
  if (all_ended)
    return fmt::format("NCCL on lane {} could not reach the other ranks within {:g} s: one hangs or is cut off", name_,
                       seconds);
  return fmt::format("no collective on lane {} has completed for {:g} s: another rank hangs or is cut off", name_,
                     seconds);
}

}  // namespace strata::comm
