#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/mpi/control_line.h"
#include "comm/staged.h"

namespace strata::comm {
namespace {

// MPI's counts are ints.
constexpr std::size_t kChunk = std::size_t{1} << 30;

// MPI moves data only inside its calls, so a wait polls: at first without a pause, then less and less often.
class Backoff {
 public:
  void rest(ControlLine& control) {
    if (++polls_ < kSpins) {
      _mm_pause();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look_) {
      control.poll();
      next_look_ = now + std::chrono::milliseconds(5);
    }
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ + nap_ / 4, std::chrono::microseconds(kLongestNap));
  }

 private:
  static constexpr int kSpins = 200, kLongestNap = 100;
  int polls_ = 0;
  std::chrono::microseconds nap_{20};
  std::chrono::steady_clock::time_point next_look_{};
};

class MessageCollectives final : public Collectives {
 public:
  // `comm` has all ranks of the world.
  MessageCollectives(MPI_Comm comm, const Group& group, ControlLine& control)
      : comm_(comm),
        group_(group),
        places_(group.places()),
        control_(control),
        rank_(group.index),
        size_(group.size()) {
    int world_rank = 0, world_size = 0;
    STRATA_MPI(MPI_Comm_rank(comm_, &world_rank));
    STRATA_MPI(MPI_Comm_size(comm_, &world_size));
    is_world_ = group_ == all_ranks(world_rank, world_size);
    requests_.reserve(2 * static_cast<std::size_t>(size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out, device::cpu::Team& team) override {
    const auto own = range.owned(rank_);
    const std::byte* source = own_piece(range, rank_, shard);
    copy(out + (own.begin - range.begin), source, own.bytes(), team);
    move(
        range.bytes(),
        [&](int) {
          return Span{const_cast<std::byte*>(source), own.bytes()};
        },
        [&](int peer) {
          const auto piece = range.owned(peer);
          return Span{out + (piece.begin - range.begin), piece.bytes()};
        });
  }

  void all_to_all(const ShardedRange& range, const std::byte* in, std::byte* staging,
                  const std::byte** pieces) override {
    const auto own = range.owned(rank_);
    const auto received = [&](int peer) { return staging + index(places_[index(peer)]) * own.bytes(); };
    for (int peer = 0; peer < size_; ++peer)
      pieces[places_[index(peer)]] = own.bytes() == 0 ? nullptr
                                     : peer == rank_  ? in + (own.begin - range.begin)
                                                      : received(peer);
    move(
        range.bytes(),
        [&](int peer) {
          const auto piece = range.owned(peer);
          return Span{const_cast<std::byte*>(in) + (piece.begin - range.begin), piece.bytes()};
        },
        [&](int peer) {
          return Span{received(peer), own.bytes()};
        });
  }
  void release() override {}

  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override {
    STRATA_CHECK_LE(bytes, Communicator::kMaxExchange);
    if (!is_world_) {
      std::memcpy(all + index(rank_) * bytes, mine, bytes);
      return move(
          bytes,
          [&](int) {
            return Span{const_cast<std::byte*>(mine), bytes};
          },
          [&](int peer) {
            return Span{all + index(peer) * bytes, bytes};
          });
    }
    const int count = static_cast<int>(bytes);
    STRATA_MPI(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_, &next_request()));
    wait();
  }

  void broadcast(std::byte* data, std::size_t bytes, int root, device::cpu::Team&) override {
    if (!is_world_)
      return move(
          bytes,
          [&](int) {
            return Span{data, rank_ == root ? bytes : 0};
          },
          [&](int peer) {
            return Span{data, peer == root ? bytes : 0};
          });
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      const int count = static_cast<int>(std::min(kChunk, bytes - at));
      STRATA_MPI(MPI_Ibcast(data + at, count, MPI_BYTE, root, comm_, &next_request()));
      wait();
    }
  }

 private:
  struct Span {
    std::byte* data;
    std::size_t bytes;
    // The size of the chunk that starts at `at`; 0 past the end.
    int chunk(std::size_t at) const { return at < bytes ? static_cast<int>(std::min(kChunk, bytes - at)) : 0; }
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  MPI_Request& next_request() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  // Sends out(peer) to every peer and receives in(peer) from it, at most `most` bytes each, in rounds of one chunk per
  // pair, so that the number of requests is bounded by the number of ranks.
  template <typename Out, typename In>
  void move(std::size_t most, Out out, In in) {
    for (std::size_t at = 0; at < most; at += kChunk) {
      for (int i = 1; i < size_; ++i) {
        const int from = (rank_ + size_ - i) % size_;
        const Span span = in(from);
        if (const int count = span.chunk(at))
          STRATA_MPI(MPI_Irecv(span.data + at, count, MPI_BYTE, group_.rank(from), 0, comm_, &next_request()));
      }
      for (int i = 1; i < size_; ++i) {
        const int to = (rank_ + i) % size_;
        const Span span = out(to);
        if (const int count = span.chunk(at))
          STRATA_MPI(MPI_Isend(span.data + at, count, MPI_BYTE, group_.rank(to), 0, comm_, &next_request()));
      }
      wait();
    }
  }

  void wait() {
    Backoff backoff;
    for (int done = 0;;) {
      STRATA_MPI(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
      if (done) break;
      backoff.rest(control_);
    }
    requests_.clear();
  }

  MPI_Comm comm_;
  const Group group_;
  const std::vector<int> places_;
  ControlLine& control_;
  const int rank_, size_;
  bool is_world_ = true;  // all ranks in their order, which MPI has its own collectives for
  std::vector<MPI_Request> requests_;
};

class MessagesWorld final : public World {
 public:
  MessagesWorld(std::unique_ptr<MpiSession> session, std::string why, std::chrono::seconds patience)
      : session_(std::move(session)),
        why_(std::move(why)),
        control_(std::make_unique<ControlLine>(*session_, token_, patience)),
        own_(over(all_ranks(session_->rank, session_->size))) {}

  ~MessagesWorld() override {
    if (left_.has_value() ? *left_ : control_->leave_together()) {
      for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
    } else {
      session_->abandon();
    }
    control_.reset();
  }

  int rank() const override { return session_->rank; }
  int size() const override { return session_->size; }
  int node_size() const override { return session_->node_size; }
  int node_rank() const override { return session_->node_rank; }
  std::string describe() const override {
    return why_.empty() ? "mpi (messages)" : fmt::format("mpi (messages): {}", why_);
  }
  AbortToken& abort_token() override { return token_; }

  device::Arena allocate_host(std::size_t bytes) override {
    // Kept until the end: when this rank unwinds after a failure, messages may still be arriving.
    std::shared_ptr<const device::Arena> arena;
    agree(*this, [&] { arena = arenas_.emplace_back(std::make_shared<device::Arena>(bytes)); });
    return device::Arena::adopt(arena->data(), bytes, arena);
  }
  std::unique_ptr<Communicator> open(device::Lane& lane, const Group& group) override {
    return communicator_for(*this, lane, over(group));
  }
  std::vector<std::string> exchange(const std::string& mine) override { return own_->exchange_texts(mine); }
  void leave() override {
    left_ = control_->leave_together();
    token_.throw_if_set();
  }
  void look_after_peers() override {
    try {
      control_->look_after();
    } catch (const Aborted&) {
    }
  }
  void report_failure(const std::string& cause, Exit code) override { control_->report_failure(cause, code); }
  Failure failure() override { return control_->failure(); }
  bool lowest_left() const override { return control_->lowest_left(); }

 private:
  std::unique_ptr<Collectives> over(const Group& group) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    STRATA_MPI(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request));
    Backoff backoff;
    for (int done = 0;;) {
      STRATA_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done) break;
      backoff.rest(*control_);
    }
    comms_.push_back(comm);
    return std::make_unique<MessageCollectives>(comm, group, *control_);
  }

  AbortToken token_;
  std::unique_ptr<MpiSession> session_;
  std::string why_;
  std::vector<std::shared_ptr<const device::Arena>> arenas_;
  std::vector<MPI_Comm> comms_;
  std::unique_ptr<ControlLine> control_;
  std::unique_ptr<Collectives> own_;
  std::optional<bool> left_;  // whether this rank left together with the others; empty: leave() was not called
};

}  // namespace

std::unique_ptr<World> mpi_messages_world(std::unique_ptr<MpiSession> session, const std::string& why,
                                          std::chrono::seconds patience) {
  return std::make_unique<MessagesWorld>(std::move(session), why, patience);
}

}  // namespace strata::comm
