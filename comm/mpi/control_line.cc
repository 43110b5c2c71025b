#include "comm/mpi/control_line.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / 1ns;
}
// Each check reads a file of /proc per neighbour.
constexpr std::int64_t kNeighbourCheckInterval = 50ms / 1ns;
// A rank's last data may arrive later than its leave notice, because they take different paths.
constexpr std::int64_t kTimeoutAfterLeaving = 3s / 1ns;

// A name that is the same on all ranks of this run and node, and on no others.
std::string name_for_losses(const MpiSession& session) {
  Process lowest = Process::self(session.rank);
  for (const Process& process : session.neighbours)
    if (process.rank < lowest.rank) lowest = process;
  return fmt::format("strata-loss-{}-{}-{}", lowest.rank, lowest.pid, lowest.start_time);
}

}  // namespace

ControlLine::ControlLine(MpiSession& session, AbortToken& token, std::chrono::seconds timeout)
    : session_(session),
      token_(token),
      timeout_(timeout),
      losses_(name_for_losses(session)),
      left_(static_cast<std::size_t>(session.size)) {
  STRATA_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
  // Allocate now, because nothing is allocated after a failure.
  failure_requests_.assign(left_.size(), MPI_REQUEST_NULL);
  leave_requests_.assign(left_.size(), MPI_REQUEST_NULL);
  listen();
}

ControlLine::~ControlLine() {
  // After a failure, make no more MPI calls: requests in flight may point at memory that has been freed.
  if (token_.is_set()) return;
  if (listening_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&listening_);
    MPI_Wait(&listening_, MPI_STATUS_IGNORE);
  }
  MPI_Waitall(session_.size, leave_requests_.data(), MPI_STATUSES_IGNORE);
  MPI_Comm_free(&comm_);
}

ControlLine::Notice ControlLine::notice(Kind kind, const Failure& failure) {
  Notice notice{kind, failure.rank, static_cast<std::int32_t>(failure.code), failure.self_reported ? 1 : 0, {}};
  failure.cause.copy(notice.text.data(), notice.text.size() - 1);
  return notice;
}

void ControlLine::listen() {
  STRATA_MPI(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, 0, comm_, &listening_));
}

void ControlLine::send_to_others(const Notice& notice, std::vector<MPI_Request>& requests) {
  for (int peer = 0; peer < session_.size; ++peer) {
    // A dead rank receives nothing. A rank that left still receives until all have left.
    const bool silent = peer == notice.rank && !left_[static_cast<std::size_t>(peer)];
    if (peer == session_.rank || silent) continue;
    const int code =
        MPI_Isend(&notice, sizeof notice, MPI_BYTE, peer, 0, comm_, &requests[static_cast<std::size_t>(peer)]);
    // Otherwise the other ranks would wait forever.
    if (code != MPI_SUCCESS && notice.kind == Kind::failed) MPI_Abort(MPI_COMM_WORLD, static_cast<int>(Exit::failed));
  }
}

void ControlLine::receive() {
  for (;;) {
    int arrived = 0;
    STRATA_MPI(MPI_Test(&listening_, &arrived, MPI_STATUS_IGNORE));
    if (!arrived) return;
    if (incoming_.kind == Kind::failed) {
      const Failure failure{incoming_.rank, incoming_.text.data(), static_cast<Exit>(incoming_.code),
                            incoming_.self_reported != 0};
      if (lowest_.rank < 0 || failure.rank < lowest_.rank) lowest_ = failure;
      token_.set(failure);
    } else {
      left_[static_cast<std::size_t>(incoming_.rank)] = true;
    }
    listen();
  }
}

void ControlLine::fail_with(const Failure& failure) {
  const bool is_cause = token_.set(failure);
  if (reported_) return;
  reported_ = true;
  // Print before sending the notices, because MPI may end this process inside a call once a peer has died. Several
  // ranks of this node may notice the loss before the first notice arrives.
  if (is_cause && !failure.self_reported && print_loss_ && losses_.take()) print_loss_(failure);
  failure_ = notice(Kind::failed, failure);
  send_to_others(failure_, failure_requests_);
}

void ControlLine::report_failure(const std::string& cause, Exit code) {
  const std::lock_guard lock(mutex_);
  // If the token names another rank, that rank's notice set it, and the notice went to all ranks.
  if (reported_ || yields_ || (token_.is_set() && token_.failure().rank != session_.rank)) return;
  // A rank whose notice has already arrived, even if unread, failed first and prints the cause.
  try {
    receive();
  } catch (const Error&) {  // MPI itself may be the cause of the failure
  }
  yields_ = lowest_.rank >= 0;
  token_.set({session_.rank, cause, code});
  Failure failure = token_.failure();
  if (failure.rank != session_.rank || yields_) return;
  failure.cause = fmt::format("rank {} failed: {}", session_.rank, failure.cause);
  fail_with(failure);
}

Failure ControlLine::failure() {
  constexpr auto kTimeToReceive = 200ms;
  Failure known = token_.failure();
  if (known.rank != session_.rank) return known;
  if (const std::lock_guard lock(mutex_); yields_) return lowest_;
  for (auto polls = 0; !listened_ && polls < kTimeToReceive / 5ms; ++polls) {
    {
      const std::lock_guard lock(mutex_);
      receive();
    }
    std::this_thread::sleep_for(5ms);
  }
  listened_ = true;
  return lowest_.rank >= 0 && lowest_.rank < known.rank ? lowest_ : known;
}

void ControlLine::when_lost(std::function<void(const Failure&)> print) {
  const std::lock_guard lock(mutex_);
  print_loss_ = std::move(print);
}

void ControlLine::poll() {
  look(true);
}

void ControlLine::check() {
  look(false);
}

void ControlLine::look(bool waiting) {
  if (token_.is_set()) {
    const Failure failure = token_.failure();
    report_failure(failure.cause, failure.code);
    throw Aborted(failure.cause);
  }
  {
    const std::lock_guard lock(mutex_);
    receive();
    const std::int64_t time = now();
    if (!token_.is_set() && time >= next_look_) {
      next_look_ = time + kNeighbourCheckInterval;
      for (const Process& process : session_.neighbours)
        if (!left_[static_cast<std::size_t>(process.rank)] && !process.alive()) {
          // The rank's leave notice may have arrived between the two checks.
          receive();
          if (!left_[static_cast<std::size_t>(process.rank)])
            fail_with({process.rank, process.death_message(), Exit::failed, false});
        }
      const auto gone = std::find(left_.begin(), left_.end(), true);
      if (waiting && gone != left_.end() && first_left_ == 0) first_left_ = time;
      if (waiting && first_left_ != 0 && time > first_left_ + kTimeoutAfterLeaving) {
        const auto rank = static_cast<int>(gone - left_.begin());
        fail_with(
            {rank,
             fmt::format("rank {} ended while rank {} waited for it: its own message says why", rank, session_.rank),
             Exit::failed, false});
      }
    }
  }
  token_.throw_if_set();
}

bool ControlLine::leave_together() {
  // The other ranks poll every few milliseconds. Once this rank ends, mpirun may stop them before they print the cause.
  constexpr auto kTimeToPrint = 500ms;
  if (!token_.is_set()) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(session_.rank)] = true;
    leave_notice_ = notice(Kind::left, {session_.rank, "", Exit::done, true});
    send_to_others(leave_notice_, leave_requests_);
  }
  const std::int64_t since = now();
  while (!token_.is_set()) {
    {
      const std::lock_guard lock(mutex_);
      receive();
      if (std::find(left_.begin(), left_.end(), false) == left_.end()) return true;
      if (now() > since + timeout_ / 1ns) {
        // Ranks of this node are checked below.
        for (int rank = 0; rank < session_.size && !token_.is_set(); ++rank)
          if (!left_[static_cast<std::size_t>(rank)] &&
              std::none_of(session_.neighbours.begin(), session_.neighbours.end(),
                           [&](const Process& process) { return process.rank == rank; }))
            fail_with({rank,
                       fmt::format("rank {} has not ended {} s after rank {}: it hangs, or was lost without a message",
                                   rank, timeout_.count(), session_.rank),
                       Exit::failed, false});
      }
      for (const Process& process : session_.neighbours) {
        if (left_[static_cast<std::size_t>(process.rank)] || process.alive()) continue;
        receive();
        if (!left_[static_cast<std::size_t>(process.rank)])
          fail_with({process.rank, process.death_message(), Exit::failed, false});
      }
    }
    std::this_thread::sleep_for(2ms);
  }
  const std::lock_guard lock(mutex_);
  for (int polls = 0, sent = 0; polls < kTimeToPrint / 5ms; ++polls) {
    // Poll MPI no longer than needed, because each call also advances the messages that the failure left in flight.
    if (!sent && MPI_Testall(session_.size, failure_requests_.data(), &sent, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
      sent = 1;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

}  // namespace strata::comm
