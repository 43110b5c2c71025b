#pragma once
// The inside of the fake of MPI: what is on its way, for fake_calls.cc.
#include <mpi.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/mpi/fake.h"

namespace fake_mpi {

enum class Carries { set_up, notices, data };

// A communicator as one rank has it; `context` is the same on all of its ranks.
struct Comm {
  int context, rank;
  std::vector<int> members;
  Carries carries;
};

// A collective of a communicator's ranks. `brought`: by rank.
struct Meeting {
  std::map<int, std::vector<std::byte>> brought;
  int context = 0;  // of the communicator that they make
};

struct Request {
  int rank, peer, tag;
  std::byte* data;
  std::size_t bytes;
  bool is_notice;
  std::size_t moved = 0;
  bool done = false;
  Request* match = nullptr;          // of a receive: the send
  std::vector<std::byte> copy{};     // of a send: what is on its way
  std::vector<Request*> parts{};     // of a collective: done with all of these
  const Meeting* meeting = nullptr;  // done when all ranks have come
  std::size_t members = 0;
};
struct Way {
  std::size_t stops_after = kAll, arrived = 0, on_their_way = 0, most_on_their_way = 0, notices_unseen_for = 0;
};

struct Fake {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> nodes;
  std::size_t bytes_per_call = kAll;
  std::size_t eager = 4096;  // bytes of a message that does not wait for its receiver
  bool newest_first = false;
  int threads = MPI_THREAD_MULTIPLE;
  std::map<std::pair<int, int>, Way> ways;
  std::map<std::pair<int, std::string>, std::size_t> calls;
  std::set<std::pair<int, std::string>> failing;
  std::map<std::pair<int, int>, int> turns;         // of a context and a rank: collectives begun
  std::map<std::pair<int, int>, Meeting> meetings;  // of a context and a turn
  int contexts = 0;
  std::map<int, std::deque<Request*>> sends, receives;  // per context: those that are not done
  std::map<const Request*, std::unique_ptr<Request>> requests, sent;
  std::vector<std::unique_ptr<Comm>> comms;
  std::set<const Comm*> open;
  std::set<int> initialized;
};
using Lock = std::unique_lock<std::mutex>;

// The run's state (null before the first run), and the calling thread's rank. Callers of the functions below hold the
// fake's mutex.
extern std::unique_ptr<Fake> fake;
extern thread_local int this_rank;

[[noreturn]] void give_up(const char* what);

Comm* make(int context, int rank, const std::vector<int>& members, Carries carries);
// MPI_COMM_WORLD is that of the calling thread's rank.
Comm& comm_of(MPI_Comm comm);
std::size_t bytes_of(int count, MPI_Datatype type);

// Counts the call. Returns MPI_SUCCESS, or the error that a test asked for.
int call(int rank, const char* name);
// The same, for the rank of the first request that exists. Also advances the messages on their way to it.
int call_on(int count, const MPI_Request* requests, const char* name);

Request* start(const Request& request);
Request* post_receive(const Comm& comm, int context, void* data, std::size_t bytes, int from, int tag);
Request* post_send(const Comm& comm, int context, const void* data, std::size_t bytes, int to, int tag);
bool is_done(const Request& request);
// Whether a request is complete. If so, frees it.
bool take(MPI_Request& handle);

// Joins the communicator's next collective with this rank's data; and waits for the other ranks.
Meeting& come(const Comm& comm, const void* data, std::size_t bytes);
void wait_for_all(const Comm& comm, const Meeting& meeting, Lock& lock);

}  // namespace fake_mpi
