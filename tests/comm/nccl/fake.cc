// A fake of NCCL between threads of one process, as far as comm/nccl*.cc calls it, built as the library's file. As
// documented, it is non-blocking; kernels are work in streams of the fake CUDA, where they wait for each other. Using a
// freed communicator, or freeing one in an open group, ends the process, because the real library would crash.
#include "tests/comm/nccl/fake.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/nccl/operations.h"

namespace {

using namespace std::chrono_literals;
using fake_nccl::die;
using fake_nccl::Fault;
using fake_nccl::Key;
using fake_nccl::Operation;

constexpr auto kStuck = 1s;

// The ranks that share an ID.
struct Clique {
  int joined = 0, finalized = 0;
  fake_nccl::Offers offers;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank, size, device;
  bool freed = false, aborted = false, in_group = false, finalizing = false, failed = false, registered = false;
  ncclResult_t state = ncclInProgress;
  std::uint64_t collectives = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages;
  std::vector<Operation> operations;  // of the open group
  cudaStream_t stream = nullptr;
  int running = 0;
  std::thread thread;  // NCCL's own: connects, then queues what a group holds
};

namespace {

std::mutex mutex;  // of all below, and of all communicators
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Clique>> cliques;
std::vector<std::unique_ptr<ncclComm>> communicators;  // freed ones too: their addresses are not used again
std::map<int, std::pair<Fault, int>> plans;            // by rank
std::atomic<int> delay{0}, stuck_calls{0};
std::string last_error;

struct Group {
  int depth = 0;
  ncclResult_t result = ncclSuccess;  // of the first call that failed, which takes all others with it
  std::vector<ncclComm*> issued, aborted;
};
thread_local Group group;
thread_local int version = 0;

using Lock = std::unique_lock<std::mutex>;

// Whether this rank's fault happens now.
bool happens(const ncclComm& comm, Fault fault) {
  const auto found = plans.find(comm.rank);
  return found != plans.end() && found->second.first == fault && found->second.second-- == 0;
}

ncclComm& alive(ncclComm* comm) {
  for (const auto& known : communicators)
    if (known.get() == comm && !comm->freed) return *comm;
  die("a communicator is used that there is not, or no more");
}

// The real library would initialise another GPU for this thread, or use the wrong one.
void check_device(const ncclComm& comm) {
  int device = -1;
  (void)cudaGetDevice(&device);
  if (device != comm.device) die("a call with another GPU current than the communicator's");
}

void run_operations(ncclComm& comm, const std::vector<Operation>& operations, bool hangs) {
  Lock lock(mutex);
  const auto wait = [&](const auto& reached) {
    changed.wait(lock, [&] { return comm.aborted || reached(); });
    return !comm.aborted;
  };
  if (comm.aborted || (hangs && !wait([] { return false; }))) return;
  fake_nccl::run(operations, comm.clique->offers, wait, [] { changed.notify_all(); });
}

struct Kernel {
  ncclComm& comm;
  std::vector<Operation> operations;
  bool hangs, fails;  // a while after it began
  static void run(void* data) {
    const std::unique_ptr<Kernel> kernel(static_cast<Kernel*>(data));
    if (kernel->fails) {
      std::this_thread::sleep_for(5ms);
      const Lock lock(mutex);
      last_error = "the link is cut";
      kernel->comm.failed = true;
    }
    run_operations(kernel->comm, kernel->operations, kernel->hangs || kernel->fails);
    const Lock lock(mutex);
    --kernel->comm.running;
    changed.notify_all();
  }
};

void launch(ncclComm& comm) {
  std::vector<Operation> operations = std::move(comm.operations);
  comm.operations.clear();
  comm.state = ncclInProgress;
  const bool hangs = happens(comm, Fault::kernel_hangs), fails = happens(comm, Fault::kernel_fails);
  if (comm.thread.joinable()) comm.thread.join();  // queued what came before, as the state said
  comm.thread = std::thread([&comm, operations, hangs, fails] {
    std::this_thread::sleep_for(20us);
    cudaSetDevice(comm.device);
    {
      const Lock lock(mutex);
      if (comm.aborted) return;
      ++comm.running;
    }
    cudaLaunchHostFunc(comm.stream, Kernel::run, new Kernel{comm, operations, hangs, fails});
    const Lock lock(mutex);
    comm.state = ncclSuccess;
  });
}

// Tells the operations to stop. Freeing them waits for the whole GPU.
void stop(ncclComm& comm) {
  if (comm.in_group) die("a communicator is freed under an open group");
  comm.aborted = true;
  std::erase_if(comm.clique->offers, [&](const auto& offer) { return std::get<0>(offer.first) == comm.rank; });
  changed.notify_all();
}
void free(Lock& lock, ncclComm& comm) {
  comm.freed = true;
  if (comm.thread.joinable()) {
    std::thread thread = std::move(comm.thread);
    lock.unlock();
    thread.join();
    lock.lock();
  }
  const auto idle = [&] {
    for (const auto& other : communicators)
      if (other->device == comm.device && other->running > 0) return false;
    return true;
  };
  if (!changed.wait_for(lock, kStuck, idle)) ++stuck_calls;
}

// One call, in a group or alone, which is then a group of its own.
ncclResult_t in_group(ncclComm* comm, cudaStream_t stream, const std::function<void(ncclComm&)>& add) {
  ncclGroupStart();
  ncclResult_t result = ncclSuccess;
  {
    const Lock lock(mutex);
    ncclComm& c = alive(comm);
    check_device(c);
    if (c.failed) {
      group.result = result = ncclRemoteError;
    } else if (c.state != ncclSuccess || happens(c, Fault::call_is_refused)) {
      last_error = c.state == ncclSuccess ? "a bad pointer" : "the communicator is not ready";
      group.result = result = ncclInvalidArgument;
    } else {
      if (!c.in_group) group.issued.push_back(comm);
      c.in_group = true;
      c.stream = stream;
      add(c);
    }
  }
  if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess ? ended : result;
}

void copy(ncclComm& comm, void* to, const void* from, std::size_t bytes) {
  if (to != from) comm.operations.push_back({Operation::own, {}, to, from, bytes, 0});
}
void give(ncclComm& comm, const void* data, std::size_t bytes, Key key, int takers) {
  if (takers > 0) comm.operations.push_back({Operation::give, key, nullptr, data, bytes, takers});
}
void take(ncclComm& comm, void* to, std::size_t bytes, Key key) {
  comm.operations.push_back({Operation::take, key, to, nullptr, bytes, 0});
}

}  // namespace

namespace fake_nccl {

void set(int rank, Fault fault, int at) {
  const Lock lock(mutex);
  plans[rank] = {fault, at};
}
void slow_down(int microseconds) {
  delay = microseconds;
}
void set_version(int number) {
  version = number;
}
void reset() {
  const Lock lock(mutex);
  plans.clear();
  cliques.clear();
  delay = 0;
  stuck_calls = 0;
}
int alive() {
  const Lock lock(mutex);
  int count = 0;
  for (const auto& comm : communicators) count += !comm->freed;
  return count;
}
int registered() {
  const Lock lock(mutex);
  int count = 0;
  for (const auto& comm : communicators) count += !comm->freed && comm->registered;
  return count;
}
int stuck() {
  return stuck_calls;
}

}  // namespace fake_nccl

extern "C" {

ncclResult_t ncclGetVersion(int* out) {
  *out = version ? version : 22903;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "invalid argument";
}
const char* ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string text;
  const Lock lock(mutex);
  if (comm) (void)alive(comm);
  text = last_error;
  return text.c_str();
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{0};
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "%d", ++next);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || config->magic != 0xcafebeef) return ncclInvalidArgument;
  const Lock lock(mutex);
  auto& clique = cliques[id.internal];
  if (!clique) clique = std::make_shared<Clique>();
  communicators.push_back(std::make_unique<ncclComm>());
  ncclComm& comm = *communicators.back();
  comm.clique = clique;
  comm.rank = rank;
  comm.size = size;
  (void)cudaGetDevice(&comm.device);
  *out = &comm;
  const bool hangs = happens(comm, Fault::connect_hangs);
  comm.thread = std::thread([&comm, out, hangs] {
    Lock inner(mutex);
    if (!hangs) ++comm.clique->joined;
    changed.notify_all();
    changed.wait(inner, [&] { return comm.aborted || comm.clique->joined == comm.size; });
    if (comm.aborted) return;
    __atomic_store_n(out, &comm, __ATOMIC_RELEASE);  // as the real one does
    comm.state = ncclSuccess;
  });
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Lock lock(mutex);
  ncclComm& c = alive(comm);
  if (c.finalizing && c.state == ncclInProgress && c.clique->finalized == c.size && c.running == 0)
    c.state = ncclSuccess;
  *state = c.failed ? ncclRemoteError : c.state;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, std::size_t, void** handle) {
  const Lock lock(mutex);
  ncclComm& c = alive(comm);
  check_device(c);
  if (happens(c, Fault::registration_is_refused)) return ncclInternalError;
  *handle = buffer;
  c.registered = true;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
  const Lock lock(mutex);
  ncclComm& c = alive(comm);
  if (!c.registered) return ncclInvalidArgument;
  c.registered = false;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (group.depth > 0) die("ncclCommFinalize in an open group");
  const Lock lock(mutex);
  ncclComm& c = alive(comm);
  if (c.state != ncclSuccess) return ncclInvalidArgument;
  if (!happens(c, Fault::finalize_hangs)) ++c.clique->finalized;
  c.finalizing = true;
  c.state = ncclInProgress;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Lock lock(mutex);
  ncclComm& c = alive(comm);
  if (!c.finalizing || c.state != ncclSuccess) die("a communicator is destroyed that is not finalized");
  stop(c);
  free(lock, c);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Lock lock(mutex);
  ncclComm& c = alive(comm);
  check_device(c);
  stop(c);
  if (group.depth > 0)
    group.aborted.push_back(comm);
  else
    free(lock, c);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::move(group);
  group = {};
  Lock lock(mutex);
  for (ncclComm* comm : ended.issued) {
    ncclComm& c = alive(comm);
    c.in_group = false;
    if (ended.result == ncclSuccess)
      launch(c);
    else
      c.operations.clear();
  }
  for (ncclComm* comm : ended.aborted) free(lock, alive(comm));
  return ended.result == ncclSuccess && !ended.issued.empty() ? ncclInProgress : ended.result;
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return in_group(comm, stream, [&](ncclComm& c) {
    const std::uint64_t n = c.collectives++;
    const auto place = [&](int rank) { return static_cast<char*>(out) + static_cast<std::size_t>(rank) * count; };
    copy(c, place(c.rank), in, count);
    give(c, in, count, {c.rank, -1, n}, c.size - 1);
    for (int r = 0; r < c.size; ++r)
      if (r != c.rank) take(c, place(r), count, {r, -1, n});
  });
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return in_group(comm, stream, [&](ncclComm& c) {
    const std::uint64_t n = c.collectives++;
    if (c.rank != root) return take(c, out, count, {root, -1, n});
    copy(c, out, in, count);
    give(c, in, count, {root, -1, n}, c.size - 1);
  });
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return in_group(comm, stream, [&](ncclComm& c) {
    give(c, in, count, {c.rank, peer, c.messages[{c.rank, peer}]++}, 1);
  });
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return in_group(comm, stream, [&](ncclComm& c) {
    take(c, out, count, {peer, c.rank, c.messages[{peer, c.rank}]++});
  });
}

}  // extern "C"
