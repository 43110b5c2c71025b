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

// Counts of MPI are ints.
constexpr std::size_t kChunk = std::size_t{1} << 30;

// MPI moves data only inside its calls, so a wait polls: at first without rest, then less and less often.
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
  MessageCollectives(MPI_Comm comm, ControlLine& control) : comm_(comm), control_(control) {
    STRATA_MPI(MPI_Comm_rank(comm_, &rank_));
    STRATA_MPI(MPI_Comm_size(comm_, &size_));
    requests_.reserve(2 * static_cast<std::size_t>(size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out, device::cpu::Team& team) override {
    const auto own = range.owned(rank_);
    const std::byte* source = own_piece(range, rank_, shard);
    copy(out + (own.begin - range.begin), source, own.bytes(), team);
    move(
        range,
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
    for (int peer = 0; peer < size_; ++peer)
      pieces[peer] = own.bytes() == 0 ? nullptr
                     : peer == rank_  ? in + (own.begin - range.begin)
                                      : staging + index(peer) * own.bytes();
    move(
        range,
        [&](int peer) {
          const auto piece = range.owned(peer);
          return Span{const_cast<std::byte*>(in) + (piece.begin - range.begin), piece.bytes()};
        },
        [&](int peer) {
          return Span{staging + index(peer) * own.bytes(), own.bytes()};
        });
  }
  void release() override {}

  void exchange(const std::byte* mine, std::size_t bytes, std::byte* all) override {
    STRATA_CHECK_LE(bytes, Communicator::kMaxExchange);
    const int count = static_cast<int>(bytes);
    STRATA_MPI(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_, &next_request()));
    wait();
  }

  void broadcast(std::byte* data, std::size_t bytes, int root, device::cpu::Team&) override {
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
    // The chunk that starts at `at`; empty behind the end.
    int chunk(std::size_t at) const { return at < bytes ? static_cast<int>(std::min(kChunk, bytes - at)) : 0; }
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  MPI_Request& next_request() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  // Sends out(peer) to every peer and receives in(peer) from it, in rounds of one chunk per pair, so that the number of
  // requests is bounded by the number of ranks.
  template <typename Out, typename In>
  void move(const ShardedRange& range, Out out, In in) {
    for (std::size_t at = 0; at < range.bytes(); at += kChunk) {
      for (int i = 1; i < size_; ++i) {
        const int from = (rank_ + size_ - i) % size_;
        const Span span = in(from);
        if (const int count = span.chunk(at))
          STRATA_MPI(MPI_Irecv(span.data + at, count, MPI_BYTE, from, 0, comm_, &next_request()));
      }
      for (int i = 1; i < size_; ++i) {
        const int to = (rank_ + i) % size_;
        const Span span = out(to);
        if (const int count = span.chunk(at))
          STRATA_MPI(MPI_Isend(span.data + at, count, MPI_BYTE, to, 0, comm_, &next_request()));
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
  ControlLine& control_;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
};

class MessagesWorld final : public World {
 public:
  MessagesWorld(std::unique_ptr<MpiSession> session, std::string why, std::chrono::seconds patience)
      : session_(std::move(session)),
        why_(std::move(why)),
        control_(std::make_unique<ControlLine>(*session_, token_, patience)),
        own_(duplicate()) {}

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
    // Kept until the end: when this rank unwinds after a failure, messages may still be coming in.
    std::shared_ptr<const device::Arena> arena;
    agree(*this, [&] { arena = arenas_.emplace_back(std::make_shared<device::Arena>(bytes)); });
    return device::Arena::adopt(arena->data(), bytes, arena);
  }
  std::unique_ptr<Communicator> open(device::Lane& lane) override { return communicator_for(*this, lane, duplicate()); }
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
  std::unique_ptr<Collectives> duplicate() {
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
    return std::make_unique<MessageCollectives>(comm, *control_);
  }

  AbortToken token_;
  std::unique_ptr<MpiSession> session_;
  std::string why_;
  std::vector<std::shared_ptr<const device::Arena>> arenas_;
  std::vector<MPI_Comm> comms_;
  std::unique_ptr<ControlLine> control_;
  std::unique_ptr<Collectives> own_;
  std::optional<bool> left_;  // together with the others; empty: leave() was not called
};

}  // namespace

std::unique_ptr<World> mpi_messages_world(std::unique_ptr<MpiSession> session, const std::string& why,
                                          std::chrono::seconds patience) {
  return std::make_unique<MessagesWorld>(std::move(session), why, patience);
}

}  // namespace strata::comm
