#include "tests/comm/mpi/fake_network.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

namespace fake_mpi {

std::unique_ptr<Fake> fake;
thread_local int this_rank = 0;

namespace {

Way& way(int from, int to) {
  return fake->ways[{from, to}];
}

// Gives each receive the first matching message that is not taken. Messages of a pair do not overtake each other.
void match(int rank, const std::deque<Request*>& receives, const std::deque<Request*>& sends) {
  for (Request* const receive : receives) {
    if (receive->rank != rank || receive->match) continue;
    std::set<int> behind;
    for (Request* const send : sends) {
      const bool fits = send->peer == rank && (receive->peer == MPI_ANY_SOURCE || receive->peer == send->rank) &&
                        receive->tag == send->tag;
      if (!fits || behind.contains(send->rank) ||
          std::ranges::any_of(receives, [&](const Request* other) { return other->match == send; }))
        continue;
      std::size_t& unseen = way(send->rank, rank).notices_unseen_for;
      if (send->is_notice && unseen > 0) {
        if (behind.insert(send->rank).second && unseen != kAll) --unseen;
        continue;
      }
      if (send->bytes > receive->bytes) give_up("a message is longer than its receiver's buffer");
      receive->match = send;
      break;
    }
  }
}

// Every call of a rank does this: it advances the messages on their way to the rank.
void progress(int rank) {
  for (auto& [context, receives] : fake->receives) {
    std::deque<Request*>& sends = fake->sends[context];
    match(rank, receives, sends);
    std::vector<Request*> mine;
    std::ranges::copy_if(receives, std::back_inserter(mine),
                         [&](const Request* one) { return one->rank == rank && one->match; });
    if (fake->newest_first) std::ranges::reverse(mine);
    std::set<int> busy;
    for (Request* const receive : mine) {
      Request& send = *receive->match;
      Way& on = way(send.rank, rank);
      std::size_t bytes = send.bytes - receive->moved;
      if (!send.is_notice) {
        if (fake->newest_first && !busy.insert(send.rank).second) continue;
        bytes = std::min({bytes, fake->bytes_per_call, on.stops_after - std::min(on.stops_after, on.arrived)});
        on.arrived += bytes;
      }
      if (bytes > 0) std::memcpy(receive->data + receive->moved, send.copy.data() + receive->moved, bytes);
      receive->moved += bytes;
      if (receive->moved < send.bytes) continue;
      if (!send.is_notice && send.bytes > 0) --on.on_their_way;
      receive->done = send.done = true;
      receive->match = nullptr;
      std::erase(receives, receive);
      std::erase(sends, &send);
      fake->sent.erase(&send);
    }
  }
  fake->changed.notify_all();
}

}  // namespace

[[noreturn]] void give_up(const char* what) {
  (void)std::fprintf(stderr, "the fake of MPI: %s\n", what);
  std::abort();
}

Comm* make(int context, int rank, const std::vector<int>& members, Carries carries) {
  fake->comms.push_back(std::make_unique<Comm>(Comm{context, rank, members, carries}));
  if (carries != Carries::set_up) fake->open.insert(fake->comms.back().get());
  return fake->comms.back().get();
}
Comm& comm_of(MPI_Comm comm) {
  if (comm == MPI_COMM_WORLD) return *fake->comms[static_cast<std::size_t>(this_rank)];
  auto& out = *reinterpret_cast<Comm*>(comm);
  if (out.carries != Carries::set_up && !fake->open.contains(&out)) give_up("a call on a communicator that was freed");
  return out;
}

std::size_t bytes_of(int count, MPI_Datatype type) {
  if (type != MPI_BYTE && type != MPI_INT) give_up("a type that it does not know");
  return static_cast<std::size_t>(count) * (type == MPI_INT ? sizeof(int) : 1);
}

int call(int rank, const char* name) {
  ++fake->calls[{rank, name}];
  return fake->failing.contains({rank, name}) ? MPI_ERR_OTHER : MPI_SUCCESS;
}

Request* start(const Request& request) {
  auto owned = std::make_unique<Request>(request);
  Request* const out = owned.get();
  fake->requests[out] = std::move(owned);
  return out;
}

Request* post_receive(const Comm& comm, int context, void* data, std::size_t bytes, int from, int tag) {
  Request* const out =
      start({comm.rank, from, tag, static_cast<std::byte*>(data), bytes, comm.carries == Carries::notices});
  fake->receives[context].push_back(out);
  return out;
}
Request* post_send(const Comm& comm, int context, const void* data, std::size_t bytes, int to, int tag) {
  const auto* const begin = static_cast<const std::byte*>(data);
  auto owned = std::make_unique<Request>(
      Request{comm.rank, to, tag, const_cast<std::byte*>(begin), bytes, comm.carries == Carries::notices});
  Request* const send = owned.get();
  fake->sends[context].push_back(send);
  Way& on = way(comm.rank, to);
  if (!send->is_notice && bytes > 0) on.most_on_their_way = std::max(on.most_on_their_way, ++on.on_their_way);
  send->copy.assign(begin, begin + bytes);
  if (bytes > fake->eager) {
    fake->requests[send] = std::move(owned);
    return send;
  }
  fake->sent[send] = std::move(owned);
  Request* const out = start({comm.rank, to, tag, nullptr, 0, false});
  out->done = true;
  return out;
}

bool is_done(const Request& request) {
  if (request.meeting) return request.meeting->brought.size() == request.members;
  return request.done && std::ranges::all_of(request.parts, [](const Request* part) { return part->done; });
}

bool take(MPI_Request& handle) {
  const auto found = fake->requests.find(reinterpret_cast<Request*>(handle));
  if (found == fake->requests.end()) give_up("a request that it does not know");
  const Request& request = *found->second;
  if (!is_done(request)) return false;
  if (!request.copy.empty() && std::memcmp(request.copy.data(), request.data, request.bytes) != 0)
    give_up("a buffer was written while it was on its way");
  for (const Request* const part : request.parts) fake->requests.erase(part);
  fake->requests.erase(found);
  handle = MPI_REQUEST_NULL;
  return true;
}

int call_on(int count, const MPI_Request* requests, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    const int rank = reinterpret_cast<Request*>(requests[i])->rank;
    if (const int code = call(rank, name); code != MPI_SUCCESS) return code;
    progress(rank);
    return MPI_SUCCESS;
  }
  return MPI_SUCCESS;
}

Meeting& come(const Comm& comm, const void* data, std::size_t bytes) {
  const int turn = fake->turns[{comm.context, comm.rank}]++;
  Meeting& meeting = fake->meetings[{comm.context, turn}];
  const auto* const begin = static_cast<const std::byte*>(data);
  meeting.brought[comm.rank].assign(begin, begin + bytes);
  if (meeting.context == 0) meeting.context = ++fake->contexts;
  fake->changed.notify_all();
  return meeting;
}
void wait_for_all(const Comm& comm, const Meeting& meeting, Lock& lock) {
  if (!fake->changed.wait_for(lock, std::chrono::seconds(60),
                              [&] { return meeting.brought.size() == comm.members.size(); }))
    give_up("not all ranks have come to a collective");
}

std::vector<std::exception_ptr> run(int ranks, const std::function<void(int)>& f, std::vector<int> nodes,
                                    const std::function<void()>& before) {
  const auto size = static_cast<std::size_t>(ranks);
  fake = std::make_unique<Fake>();
  fake->nodes = nodes.empty() ? std::vector<int>(size) : std::move(nodes);
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  for (const int rank : all) make(0, rank, all, Carries::set_up);
  if (before) before();
  std::vector<std::exception_ptr> thrown(size);
  std::vector<std::jthread> threads;
  for (const int rank : all)
    threads.emplace_back([&, rank] {
      this_rank = rank;
      try {
        f(rank);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  threads.clear();
  return thrown;
}

void run_well(int ranks, const std::function<void(int)>& f, std::vector<int> nodes,
              const std::function<void()>& before) {
  for (const std::exception_ptr& thrown : run(ranks, f, std::move(nodes), before))
    if (thrown) std::rethrow_exception(thrown);
}

void belong_to(int rank) {
  this_rank = rank;
}
void set_bytes_per_call(std::size_t bytes, bool newest_first) {
  const Lock lock(fake->mutex);
  fake->bytes_per_call = bytes;
  fake->newest_first = newest_first;
}
void set_eager_limit(std::size_t bytes) {
  const Lock lock(fake->mutex);
  fake->eager = bytes;
}
void stop_data(int from, int to, std::size_t after) {
  const Lock lock(fake->mutex);
  way(from, to).stops_after = after;
}
void delay_notices(int from, int to, std::size_t calls) {
  const Lock lock(fake->mutex);
  way(from, to).notices_unseen_for = calls;
}
void fail_calls(int rank, const std::string& name) {
  const Lock lock(fake->mutex);
  fake->failing.insert({rank, name});
}
void provide_threads(int level) {
  const Lock lock(fake->mutex);
  fake->threads = level;
}
std::size_t calls(int rank, const std::string& name) {
  const Lock lock(fake->mutex);
  return fake->calls[{rank, name}];
}
std::size_t arrived(int from, int to) {
  const Lock lock(fake->mutex);
  return way(from, to).arrived;
}
std::size_t most_on_their_way(int from, int to) {
  const Lock lock(fake->mutex);
  return way(from, to).most_on_their_way;
}
std::size_t open_requests(int rank) {
  const Lock lock(fake->mutex);
  return static_cast<std::size_t>(
      std::ranges::count_if(fake->requests, [&](const auto& one) { return one.first->rank == rank; }));
}
std::size_t open_communicators(int rank) {
  const Lock lock(fake->mutex);
  return static_cast<std::size_t>(
      std::ranges::count_if(fake->open, [&](const Comm* one) { return one->rank == rank; }));
}

}  // namespace fake_mpi
