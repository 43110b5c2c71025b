#include "comm/shared_memory.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/shared_mapping.h"

namespace strata::comm {
namespace {

using Clock = std::chrono::steady_clock;
// Each check reads a file of /proc per peer. mpirun ends all ranks soon after one was killed, and the others must
// report which one before that.
constexpr auto kPeerCheckInterval = std::chrono::milliseconds(50);
constexpr auto kTimeoutAfterFailure = std::chrono::seconds(5);

// Every collective starts with publish, arrive, and a wait until all have arrived. Collectives that read other ranks'
// buffers end with finish and a wait until all have finished, so that the source may change afterwards. Messages
// between two ranks have separate signals.
class SharedCollectives final : public Collectives {
 public:
  SharedCollectives(SharedMemory& memory, Group group, int channel, bool releases_pages)
      : memory_(memory),
        group_(std::move(group)),
        places_(group_.places()),
        channel_(channel),
        releases_pages_(releases_pages),
        borrowed_(index(group_.size())),
        messages_(index(group_.size())) {}

  int rank() const override { return group_.index; }
  int size() const override { return group_.size(); }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out, device::cpu::Team& team) override {
    const auto own = range.owned(rank());
    const std::byte* source = own_piece(range, rank(), shard);
    arrive(own.bytes() ? memory_.locate(source, own.bytes()) : Place{});
    copy(out + (own.begin - range.begin), source, own.bytes(), team);
    // Each rank starts with the next one, so that they do not all read the same rank's memory at the same time.
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      wait_arrived(peer);
      const auto piece = range.owned(peer);
      if (piece.bytes() == 0) continue;
      copy(out + (piece.begin - range.begin), reach(peer), piece.bytes(), team);
    }
    finish_together();
  }

  void all_to_all(const ShardedRange& range, const std::byte* in, std::byte*, const std::byte** pieces) override {
    const auto own = range.owned(rank());
    arrive(range.bytes() ? memory_.locate(in, range.bytes()) : Place{});
    for (int peer = 0; peer < size(); ++peer) {
      wait_arrived(peer);
      const std::byte*& piece = pieces[places_[index(peer)]];
      piece = nullptr;
      if (own.bytes() == 0) continue;
      const std::byte* base = peer == rank() ? in : reach(peer);
      piece = base + (own.begin - range.begin);
      borrowed_[index(peer)] = {piece, own.bytes()};
    }
    lent_ = true;
  }

  void release() override {
    STRATA_CHECK(lent_);
    finish_together();
    lent_ = false;
    if (!releases_pages_) return;
    // Releases the pages of gradients: each is read once, and the next step's are in the same place. Gathered
    // parameters are read repeatedly.
    for (int peer = 0; peer < size(); ++peer) {
      auto& [data, bytes] = borrowed_[index(peer)];
      memory_.release_pages(group_.rank(peer), data, std::exchange(bytes, 0));
    }
  }

  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override {
    STRATA_CHECK_LE(bytes, Communicator::kMaxExchange);
    const std::size_t half = (sequence_ + 1) % 2;
    std::memcpy(slot(rank()).message[half], mine, bytes);
    arrive({});
    for (int peer = 0; peer < size(); ++peer) {
      wait_arrived(peer);
      std::memcpy(all + index(peer) * bytes, slot(peer).message[half], bytes);
    }
  }

  void broadcast(std::byte* data, std::size_t bytes, int root, device::cpu::Team& team) override {
    const bool source = rank() == root;
    arrive(source && bytes ? memory_.locate(data, bytes) : Place{});
    for (int peer = 0; peer < size(); ++peer) wait_arrived(peer);
    if (!source && bytes) copy(data, reach(root), bytes, team);
    finish_together();
  }

  // Returns once the receiver has copied the message, so that the buffer is not read afterwards.
  void send(const std::byte* data, std::size_t bytes, int to) override {
    PairSlot& pair = memory_.control().pair(channel_, group_.rank(rank()), group_.rank(to));
    pair.place = memory_.locate(data, bytes);
    pair.bytes = bytes;
    const std::uint32_t number = ++messages_[index(to)].sent;
    pair.offered.raise(number);
    memory_.wait(pair.taken, number, group_.rank(to));
  }

  void receive(std::byte* data, std::size_t bytes, int from, device::cpu::Team& team) override {
    const int sender = group_.rank(from);
    PairSlot& pair = memory_.control().pair(channel_, sender, group_.rank(rank()));
    const std::uint32_t number = ++messages_[index(from)].received;
    memory_.wait(pair.offered, number, sender);
    STRATA_CHECK_EQ(pair.bytes, bytes);
    const std::byte* const source = memory_.reach(sender, pair.place);
    copy(data, source, bytes, team);
    pair.taken.raise(number);
    if (releases_pages_) memory_.release_pages(sender, source, bytes);  // read once, as gradients are
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  RankSlot& slot(int peer) const { return memory_.control().slot(channel_, group_.rank(peer)); }
  // The buffer that the peer announced.
  const std::byte* reach(int peer) const { return memory_.reach(group_.rank(peer), slot(peer).place); }

  void arrive(Place place) {
    STRATA_CHECK(!lent_);  // a release must follow each all_to_all
    slot(rank()).place = place;
    slot(rank()).arrived.raise(++sequence_);
  }
  void wait_arrived(int peer) const { memory_.wait(slot(peer).arrived, sequence_, group_.rank(peer)); }
  void finish_together() const {
    slot(rank()).finished.raise(sequence_);
    for (int peer = 0; peer < size(); ++peer) memory_.wait(slot(peer).finished, sequence_, group_.rank(peer));
  }

  struct Borrowed {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  SharedMemory& memory_;
  const Group group_;
  const std::vector<int> places_;
  int channel_;
  bool releases_pages_;
  std::uint32_t sequence_ = 0;
  bool lent_ = false;
  std::vector<Borrowed> borrowed_;  // indexed by rank, until release()
  struct Messages {
    std::uint32_t sent = 0, received = 0;
  };
  std::vector<Messages> messages_;  // to and from each rank
};

}  // namespace

SharedMemory::SharedMemory(ControlBlock control, int rank, AbortToken& token, std::vector<Process> peers)
    : control_(control), rank_(rank), token_(token), peers_(std::move(peers)) {}

SharedMemory::~SharedMemory() {
  control_.leave(rank_);
}

void SharedMemory::add_arena(std::size_t bytes, const std::vector<const std::byte*>& bases) {
  const std::size_t n = arena_count_.load(std::memory_order_relaxed);
  if (n == kMaxArenas) fail(Exit::failed, "a world has at most {} arenas: keep them and reuse them", kMaxArenas);
  STRATA_CHECK_EQ(bases.size(), index(size()));
  arenas_[n] = {bytes, bases};
  arena_count_.store(n + 1, std::memory_order_release);
}

Place SharedMemory::locate(const std::byte* data, std::size_t bytes) const {
  // Search from the newest: the addresses of a freed arena may have been reused.
  for (std::size_t n = arena_count_.load(std::memory_order_acquire); n-- > 0;) {
    const std::byte* base = arenas_[n].bases[index(rank_)];
    if (base <= data && data + bytes <= base + arenas_[n].bytes) return {n, static_cast<std::uint64_t>(data - base)};
  }
  fail(Exit::failed, "rank {}: a collective was given {} bytes outside the arenas that the world allocated", rank_,
       bytes);
}

void SharedMemory::release_pages(int rank, const std::byte* data, std::size_t bytes) const {
  constexpr std::size_t kWorthwhile = std::size_t{256} << 10;
  // Threads read each other's memory directly: there is no second mapping to drop.
  if (peers_.empty() || rank == rank_ || bytes < kWorthwhile) return;
  comm::release_pages(data, bytes);
}

std::unique_ptr<Collectives> SharedMemory::open(const Group& group, bool releases_pages) {
  STRATA_CHECK_LT(channels_, kChannels);
  return std::make_unique<SharedCollectives>(*this, group, channels_++, releases_pages);
}

// Sets the token with the cause that the group has agreed on: the first one reported.
void SharedMemory::fail_with(const Failure& failure) const {
  if (control_.report_failure(failure) && !failure.self_reported && print_loss_) print_loss_(failure);
  // If the group has agreed on none, the first reporter died while it wrote its cause.
  token_.set(control_.failed() ? control_.failure() : failure);
}

void SharedMemory::end_with_failure(const Failure& failure) const {
  fail_with(failure);
  throw Aborted(token_.failure().cause);
}

void SharedMemory::report_failure(const std::string& cause, Exit code) const {
  token_.set({rank_, cause, code});
  Failure failure = token_.failure();
  // A token that names another rank was set from the control block, so the block has the cause already.
  if (failure.rank != rank_) return;
  failure.cause = fmt::format("rank {} failed: {}", rank_, failure.cause);
  control_.report_failure(failure);
}

Failure SharedMemory::failure() const {
  return control_.failed() ? control_.failure() : token_.failure();
}

void SharedMemory::poll(bool check_peers) const {
  if (token_.is_set()) {
    const Failure failure = token_.failure();
    report_failure(failure.cause, failure.code);
    throw Aborted(failure.cause);
  }
  if (control_.failed()) end_with_failure({});
  if (!check_peers) return;
  for (const Process& peer : peers_) {
    // Test alive() before left(), because a rank that has left may be gone a moment later.
    if (!peer.alive() && !control_.left(peer.rank))
      end_with_failure({peer.rank, peer.death_message(), Exit::failed, false});
  }
}

void SharedMemory::check_peers() const {
  try {
    poll(true);
  } catch (const Aborted&) {
  }
}

void SharedMemory::wait(const Signal& signal, std::uint32_t target, int peer) const {
  if (signal.spin(target)) return;
  for (auto next_look = Clock::now() + kPeerCheckInterval; !signal.reached(target); signal.sleep(target)) {
    const auto now = Clock::now();
    const bool look = now >= next_look;
    if (look) next_look = now + kPeerCheckInterval;
    poll(look);
    if (control_.left(peer) && !signal.reached(target))
      end_with_failure({peer,
                        fmt::format("rank {} ended while rank {} waited for it: its own message says why", peer, rank_),
                        Exit::failed, false});
  }
}

bool SharedMemory::leave_together() const {
  control_.leave(rank_);
  const auto start = Clock::now();
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < size(); ++rank) all = all && control_.left(rank);
    if (all) return true;
    for (const Process& peer : peers_) {
      if (peer.alive() || control_.left(peer.rank)) continue;
      fail_with({peer.rank, peer.death_message(), Exit::failed, false});
      return false;
    }
    if (control_.failed() && Clock::now() - start > kTimeoutAfterFailure) {
      fail_with({});
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace strata::comm
