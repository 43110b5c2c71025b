#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/levels.h"
#include "comm/mpi/control_line.h"
#include "comm/staged.h"

namespace strata::comm {
namespace {

// MPI counts elements in an int.
constexpr std::size_t kChunk = std::size_t{1} << 30;

// MPI moves data only inside its calls, so a wait polls: at first without a pause, then less and less often. A long
// wait, for a slow or lost rank, takes at most 2% longer than it must, and leaves the processor to others.
class Backoff {
 public:
  void wait(ControlLine& control) {
    if (++polls_ < kSpins) {
      _mm_pause();
      return;
    }
    const auto now = Clock::now();
    if (polls_ == kSpins) began_ = now;
    if (now >= next_look_) {
      control.poll();
      next_look_ = now + std::chrono::milliseconds(5);
    }
    std::this_thread::sleep_for(sleep_);
    const Clock::duration longest = std::clamp<Clock::duration>((now - began_) / 50, kShortSleep, kLongSleep);
    sleep_ = std::min(sleep_ + sleep_ / 4, longest);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpins = 200;
  static constexpr std::chrono::microseconds kShortSleep{100}, kLongSleep{2000};
  int polls_ = 0;
  Clock::duration sleep_ = std::chrono::microseconds(20);
  Clock::time_point began_{}, next_look_{};
};

// Data is sent in pieces that need no handshake (kMessagePiece), because a handshake would queue after the other data
// of its connection. MPI buffers pieces that arrive before their receives are posted. To limit these to kWindow from
// each peer, a sender waits for credits after that number, and a receiver sends one credit for every kCredit pieces
// that it has received. In a gather or an all-to-all, each rank needs all the others' data, so none is more than one
// call ahead. A rank that receives nothing could be many calls ahead, so its call also waits for a credit that says
// that the receiver's call has begun.
constexpr std::size_t kWindow = 16, kCredit = 4, kSlots = kWindow + 1;
// How many members (or nodes) a rank exchanges with at the same time. This bounds the number of requests.
constexpr int kPeersAtOnce = 32, kNodesAtOnce = 8;

class MessageCollectives final : public Collectives {
 public:
  // `comm` contains all ranks of the world. `nodes` is the result of World::nodes().
  MessageCollectives(MPI_Comm comm, const Group& group, ControlLine& control, std::span<const int> nodes)
      : comm_(comm),
        group_(group),
        places_(group.places()),
        levels_(group, nodes),
        control_(control),
        rank_(group.index),
        size_(group.size()) {
    int world_rank = 0, world_size = 0;
    STRATA_MPI(MPI_Comm_rank(comm_, &world_rank));
    STRATA_MPI(MPI_Comm_size(comm_, &world_size));
    is_world_ = group_ == all_ranks(world_rank, world_size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(const ShardedRange& range, const std::byte* shard, std::byte* out, device::cpu::Team& team) override {
    const auto own = range.owned(rank_);
    const std::byte* source = own_piece(range, rank_, shard);
    copy(out + (own.begin - range.begin), source, own.bytes(), team);
    const auto piece = [&](int member) {
      const auto owned = range.owned(member);
      if (member == rank_) return Span{const_cast<std::byte*>(source), owned.bytes()};
      return Span{out + (owned.begin - range.begin), owned.bytes()};
    };
    if (levels_.two()) return gather_over_nodes(piece);
    move([&](int) { return piece(rank_); }, piece);
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
          [&](int) {
            return Span{const_cast<std::byte*>(mine), bytes};
          },
          [&](int peer) {
            return Span{all + index(peer) * bytes, bytes};
          });
    }
    const int count = static_cast<int>(bytes);
    requests_.assign(1, MPI_REQUEST_NULL);
    STRATA_MPI(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_, requests_.data()));
    wait();
  }

  void broadcast(std::byte* data, std::size_t bytes, int root, device::cpu::Team&) override {
    if (!is_world_)
      return move(
          [&](int) {
            return Span{data, rank_ == root ? bytes : 0};
          },
          [&](int peer) {
            return Span{data, peer == root ? bytes : 0};
          },
          true);
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      const int count = static_cast<int>(std::min(kChunk, bytes - at));
      requests_.assign(1, MPI_REQUEST_NULL);
      STRATA_MPI(MPI_Ibcast(data + at, count, MPI_BYTE, root, comm_, requests_.data()));
      wait();
    }
  }

  void send(const std::byte* data, std::size_t bytes, int to) override {
    add({to, rank_, false, {const_cast<std::byte*>(data), bytes}, -1, true});
    run();
  }
  void receive(std::byte* data, std::size_t bytes, int from, device::cpu::Team&) override {
    add({from, from, true, {data, bytes}, -1, true});
    run();
  }

 private:
  struct Span {
    std::byte* data;
    std::size_t bytes;
  };
  // A transfer to or from a member, in pieces that arrive in order. Streams of one pair in one direction are
  // distinguished by the member that owns the data.
  struct Stream {
    int peer, owner;
    bool receives;
    Span span;
    int after = -1;                     // the stream whose received pieces this one forwards; -1: all data is available
    bool one_sided = false;             // the receiver sends no data, so a credit says that its call has begun
    std::size_t started = 0, done = 0;  // pieces
    std::size_t credits = 0;            // credits sent, or receives posted for credits

    std::size_t pieces() const { return (span.bytes + kMessagePiece - 1) / kMessagePiece; }
    std::size_t extra_credits() const { return one_sided ? 1 : 0; }
    std::size_t all_credits() const {
      return extra_credits() + (pieces() > kWindow ? (pieces() - kWindow + kCredit - 1) / kCredit : 0);
    }
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  int add(const Stream& stream) {
    if (stream.span.bytes == 0) return -1;
    streams_.push_back(stream);
    return static_cast<int>(streams_.size()) - 1;
  }

  // Sends out(peer) to every peer and receives in(peer) from it. `one_sided`: only one of the two has bytes.
  template <typename Out, typename In>
  void move(Out out, In in, bool one_sided = false) {
    for (int first = 1; first < size_; first += kPeersAtOnce) {
      const int end = std::min(size_, first + kPeersAtOnce);
      for (int i = first; i < end; ++i) {
        const int from = (rank_ + size_ - i) % size_;
        add({from, from, true, in(from), -1, one_sided});
      }
      for (int i = first; i < end; ++i) {
        const int to = (rank_ + i) % size_;
        add({to, rank_, false, out(to), -1, one_sided});
      }
      run();
    }
  }

  // Each rank sends its own piece to the rank with the same place on every other node, and passes on what it receives
  // to the ranks of its own node. So each byte is sent to a node once, over the connections of all its ranks. Each node
  // starts with the next one, so that no node receives from all others at the same time.
  template <typename Piece>
  void gather_over_nodes(Piece piece) {
    const auto& nodes = levels_.nodes();
    const int count = static_cast<int>(nodes.size()), node = levels_.node();
    const std::vector<int>& near = nodes[index(node)];
    const auto at = [&](int distance) -> const std::vector<int>& {
      return nodes[index((node + distance + count) % count)];
    };
    const auto for_near = [&](auto&& f) {
      for (std::size_t i = 1; i < near.size(); ++i) f((index(levels_.place()) + i) % near.size());
    };
    for (int first = 0; first < count; first += kNodesAtOnce) {
      const int end = std::min(count, first + kNodesAtOnce);
      // Distance 0 is the node itself.
      for (int i = first; i < end; ++i) {
        const std::vector<int>& from = at(-i);
        const int far = from[index(levels_.place())];
        const int arrives = i == 0 ? -1 : add({far, far, true, piece(far)});
        for_near([&](std::size_t place) {
          add({near[place], from[place], true, piece(from[place])});
          if (i == 0 || arrives >= 0) add({near[place], far, false, piece(far), arrives});
        });
        if (i > 0) add({at(i)[index(levels_.place())], rank_, false, piece(rank_)});
      }
      run();
    }
  }

  // Starts pieces and the credit of a stream, as far as its window allows. The credit's slot is the last one.
  void start(Stream& stream, MPI_Request* slots) {
    while (stream.done < stream.started && slots[stream.done % kWindow] == MPI_REQUEST_NULL) ++stream.done;
    const int peer = group_.rank(stream.peer);
    MPI_Request& credit = slots[kWindow];
    std::size_t end =
        std::min(stream.after < 0 ? stream.pieces() : streams_[index(stream.after)].done, stream.done + kWindow);
    if (!stream.receives) {
      const std::size_t granted = stream.credits - (credit == MPI_REQUEST_NULL ? 0 : 1);
      end = std::min(end, kWindow + (granted - std::min(granted, stream.extra_credits())) * kCredit);
    }
    for (; stream.started < end; ++stream.started) {
      const std::size_t begin = stream.started * kMessagePiece;
      const int count = static_cast<int>(std::min(kMessagePiece, stream.span.bytes - begin));
      std::byte* const data = stream.span.data + begin;
      MPI_Request* const slot = slots + stream.started % kWindow;
      if (stream.receives)
        STRATA_MPI(MPI_Irecv(data, count, MPI_BYTE, peer, stream.owner, comm_, slot));
      else
        STRATA_MPI(MPI_Isend(data, count, MPI_BYTE, peer, stream.owner, comm_, slot));
    }
    const bool may_credit = !stream.receives || stream.done >= (stream.credits + 1 - stream.extra_credits()) * kCredit;
    if (credit == MPI_REQUEST_NULL && stream.credits < stream.all_credits() && may_credit) {
      const int tag = size_ + stream.owner;
      if (stream.receives)
        STRATA_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, comm_, &credit));
      else
        STRATA_MPI(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, comm_, &credit));
      ++stream.credits;
    }
  }

  // Runs all streams to completion, then removes them.
  void run() {
    requests_.assign(streams_.size() * kSlots, MPI_REQUEST_NULL);
    ended_.resize(requests_.size());
    std::size_t left = 0;
    for (const Stream& stream : streams_) left += stream.pieces() + stream.all_credits();
    const auto start_all = [&] {
      for (std::size_t s = 0; s < streams_.size(); ++s) start(streams_[s], requests_.data() + s * kSlots);
    };
    start_all();
    Backoff backoff;
    while (left > 0) {
      int ended = 0;
      STRATA_MPI(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &ended, ended_.data(),
                              MPI_STATUSES_IGNORE));
      STRATA_CHECK(ended != MPI_UNDEFINED);
      if (ended == 0) {
        backoff.wait(control_);
        continue;
      }
      left -= static_cast<std::size_t>(ended);
      start_all();
      backoff = {};
    }
    streams_.clear();
  }

  void wait() {
    Backoff backoff;
    for (int done = 0;;) {
      STRATA_MPI(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
      if (done) break;
      backoff.wait(control_);
    }
  }

  MPI_Comm comm_;
  const Group group_;
  const std::vector<int> places_;
  const Levels levels_;
  ControlLine& control_;
  const int rank_, size_;
  bool is_world_ = true;  // all ranks in order: MPI's own collectives can be used
  std::vector<Stream> streams_;
  std::vector<MPI_Request> requests_;  // kSlots for each stream
  std::vector<int> ended_;
};

class MessagesWorld final : public World {
 public:
  MessagesWorld(std::unique_ptr<MpiSession> session, std::string why, std::chrono::seconds timeout)
      : session_(std::move(session)),
        why_(std::move(why)),
        control_(std::make_unique<ControlLine>(*session_, token_, timeout)),
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
  std::vector<int> nodes() const override { return session_->nodes; }
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
    return communicator_for(*this, lane, group, over(group));
  }
  std::vector<std::string> exchange(const std::string& mine) override { return own_->exchange_texts(mine); }
  void leave() override {
    left_ = control_->leave_together();
    token_.throw_if_set();
  }
  void check_peers() override {
    try {
      control_->check();
    } catch (const Aborted&) {
    }
  }
  void report_failure(const std::string& cause, Exit code) override { control_->report_failure(cause, code); }
  Failure failure() override { return control_->failure(); }
  void when_lost(std::function<void(const Failure&)> print) override { control_->when_lost(std::move(print)); }

 private:
  std::unique_ptr<Collectives> over(const Group& group) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    STRATA_MPI(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request));
    Backoff backoff;
    for (int done = 0;;) {
      STRATA_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done) break;
      backoff.wait(*control_);
    }
    comms_.push_back(comm);
    return std::make_unique<MessageCollectives>(comm, group, *control_, session_->nodes);
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
                                          std::chrono::seconds timeout) {
  return std::make_unique<MessagesWorld>(std::move(session), why, timeout);
}

}  // namespace strata::comm
