#include "comm/shared_memory.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/mpi/mpi.h"
#include "comm/shared_mapping.h"
#include "comm/staged.h"

namespace strata::comm {
namespace {

using Address = SharedMapping::Address;

// A name for a run's memory file that no other run on this machine uses: strata-RUN-RANK-NUMBER.
std::string name(std::uint64_t run, int rank, std::size_t number) {
  return fmt::format("strata-{:x}-{}-{}", run, rank, number);
}

class MpiSharedMemoryWorld final : public World {
 public:
  MpiSharedMemoryWorld(std::unique_ptr<MpiSession> session, SharedMapping control, ControlBlock block,
                       std::uint64_t run)
      : session_(std::move(session)),
        control_(std::move(control)),
        memory_(block, session_->rank, token_, session_->neighbours),
        own_(memory_.open(all_ranks(session_->rank, session_->size), false)),
        run_(run) {}

  ~MpiSharedMemoryWorld() override {
    // MPI_Finalize waits for all ranks, so it is called only if all of them leave.
    if (!(left_.has_value() ? *left_ : memory_.leave_together())) session_->abandon();
  }

  int rank() const override { return memory_.rank(); }
  int size() const override { return memory_.size(); }
  int node_size() const override { return session_->node_size; }
  int node_rank() const override { return session_->node_rank; }
  std::string describe() const override { return "mpi (shared memory)"; }
  AbortToken& abort_token() override { return token_; }

  device::Arena allocate_host(std::size_t bytes) override;
  std::unique_ptr<Communicator> open(device::Lane& lane, const Group& group) override {
    return communicator_for(*this, lane, group, memory_.open(group, lane.device().kind == device::Kind::cpu));
  }
  std::vector<std::string> exchange(const std::string& mine) override { return own_->exchange_texts(mine); }
  void leave() override {
    left_ = memory_.leave_together();
    memory_.check_peers();  // a rank that failed has left, too
    token_.throw_if_set();
  }
  void check_peers() override { memory_.check_peers(); }
  void report_failure(const std::string& cause, Exit code) override { memory_.report_failure(cause, code); }
  Failure failure() override { return memory_.failure(); }
  void when_lost(std::function<void(const Failure&)> print) override { memory_.when_lost(std::move(print)); }

 private:
  AbortToken token_;
  std::unique_ptr<MpiSession> session_;
  SharedMapping control_;
  SharedMemory memory_;
  std::unique_ptr<Collectives> own_;
  std::uint64_t run_;
  std::size_t arenas_ = 0;
  std::optional<bool> left_;          // whether this rank left together with the others; empty: leave() was not called
  std::vector<SharedMapping> peers_;  // the other ranks' arenas
};

device::Arena MpiSharedMemoryWorld::allocate_host(std::size_t bytes) {
  if (size() == 1) {  // there is no rank to share with, and anonymous memory has huge pages on more machines
    device::Arena arena(bytes);
    memory_.add_arena(bytes, {arena.data()});
    return arena;
  }
  std::shared_ptr<SharedMapping> mapping;
  agree(*this, [&] { mapping = std::make_shared<SharedMapping>(name(run_, rank(), arenas_++), bytes); });
  const Address address = mapping->address();
  std::vector<Address> addresses(static_cast<std::size_t>(size()));
  own_->exchange(reinterpret_cast<const std::byte*>(&address), sizeof address,
                 reinterpret_cast<std::byte*>(addresses.data()));
  std::vector<const std::byte*> bases;
  // Once this returns, all ranks have opened the file.
  agree(*this, [&] {
    for (int r = 0; r < size(); ++r) {
      const Address& other = addresses[static_cast<std::size_t>(r)];
      STRATA_CHECK_EQ(other.bytes, bytes);
      bases.push_back(r == rank() ? mapping->data() : peers_.emplace_back(SharedMapping::of(other)).data());
    }
  });
  memory_.add_arena(bytes, bases);
  mapping->close_file();
  return device::Arena::adopt(mapping->data(), bytes, mapping);
}

}  // namespace

std::unique_ptr<World> mpi_shared_memory_world(std::unique_ptr<MpiSession>& session, std::string& why_not) {
  const int rank = session->rank, size = session->size;
  auto run = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  STRATA_MPI(MPI_Bcast(&run, sizeof run, MPI_BYTE, 0, MPI_COMM_WORLD));

  // Rank 0 creates the control block, and the other ranks map it. If that works, arenas will work too.
  const std::size_t bytes = ControlBlock::bytes(size);
  SharedMapping mapping;
  Address address{};
  why_not.clear();
  try {
    if (rank == 0) {
      mapping = SharedMapping(name(run, 0, SIZE_MAX), bytes);
      ControlBlock::construct(mapping.data(), size);
      address = mapping.address();
    }
  } catch (const Error& e) {
    why_not = e.what();  // without a memfd the address stays empty, and the other ranks cannot map it either
  }
  STRATA_MPI(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, MPI_COMM_WORLD));
  try {
    if (session->node_size != size) fail(Exit::usage, "ranks are on different nodes");
    if (rank != 0) mapping = SharedMapping::of(address);
  } catch (const Error& e) {
    why_not = e.what();
  }
  // All ranks use the message of the first rank that failed to map it.
  char words[256] = {};
  why_not.copy(words, sizeof words - 1);
  int unable = why_not.empty() ? size : rank, first = size;
  STRATA_MPI(MPI_Allreduce(&unable, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  if (first == size) {
    mapping.close_file();
    const ControlBlock block = ControlBlock::attach(mapping.data(), size);
    return std::make_unique<MpiSharedMemoryWorld>(std::move(session), std::move(mapping), block, run);
  }
  STRATA_MPI(MPI_Bcast(words, sizeof words, MPI_BYTE, first, MPI_COMM_WORLD));
  why_not = words;
  return nullptr;
}

}  // namespace strata::comm
