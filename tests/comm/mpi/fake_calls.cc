// The calls of MPI that comm/mpi makes. Defined in the test program, they take the place of the library's.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "tests/comm/mpi/fake_network.h"

namespace {

using namespace fake_mpi;

// A collective that uses separate messages.
template <typename Post>
int together(MPI_Comm of, MPI_Request* out, const char* name, Post post) {
  const Comm& comm = comm_of(of);
  if (const int code = call(comm.rank, name); code != MPI_SUCCESS) return code;
  const int turn = fake->turns[{-comm.context, comm.rank}]++;
  Request whole{comm.rank, 0, 0, nullptr, 0, false};
  whole.done = true;
  for (const int peer : comm.members)
    if (peer != comm.rank) post(comm, peer, turn, whole.parts);
  *out = reinterpret_cast<MPI_Request>(start(whole));
  return MPI_SUCCESS;
}

}  // namespace

extern "C" {

int MPI_Initialized(int* flag) {
  if (!fake) {  // the library's C++ part calls this while it is loaded
    *flag = 0;
    return MPI_SUCCESS;
  }
  const Lock lock(fake->mutex);
  *flag = fake->initialized.contains(this_rank);
  return call(this_rank, "Initialized");
}
int MPI_Init_thread(int*, char***, int, int* provided) {
  const Lock lock(fake->mutex);
  fake->initialized.insert(this_rank);
  *provided = fake->threads;
  return call(this_rank, "Init_thread");
}
int MPI_Finalize() {
  const Lock lock(fake->mutex);
  return call(this_rank, "Finalize");
}
int MPI_Abort(MPI_Comm, int) {
  const Lock lock(fake->mutex);
  return call(this_rank, "Abort");
}
int MPI_Error_string(int code, char* text, int* size) {
  if (code == MPI_ERR_UNKNOWN) return MPI_ERR_ARG;
  *size = std::snprintf(text, MPI_MAX_ERROR_STRING, "error %d of the fake", code);
  return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) {
  return MPI_SUCCESS;
}
int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  const Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  *rank = static_cast<int>(std::ranges::find(of.members, of.rank) - of.members.begin());
  return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int* size) {
  const Lock lock(fake->mutex);
  *size = static_cast<int>(comm_of(comm).members.size());
  return MPI_SUCCESS;
}
int MPI_Comm_free(MPI_Comm* comm) {
  const Lock lock(fake->mutex);
  const Comm& of = comm_of(*comm);
  if (const int code = call(of.rank, "Comm_free"); code != MPI_SUCCESS) return code;
  fake->open.erase(&of);
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}
int MPI_Comm_split_type(MPI_Comm comm, int, int, MPI_Info, MPI_Comm* out) {
  Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  const Meeting& meeting = come(of, nullptr, 0);
  wait_for_all(of, meeting, lock);
  std::vector<int> members;
  const auto node = [](int rank) { return fake->nodes[static_cast<std::size_t>(rank)]; };
  std::ranges::copy_if(of.members, std::back_inserter(members), [&](int rank) { return node(rank) == node(of.rank); });
  // It has the ranks of one node only, so that ranks of other nodes do not join its collectives.
  Comm* const made = make(meeting.context * 1'000 + node(of.rank), of.rank, members, Carries::set_up);
  fake->open.insert(made);
  *out = reinterpret_cast<MPI_Comm>(made);
  return MPI_SUCCESS;
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* out) {
  Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  const Meeting& meeting = come(of, nullptr, 0);
  wait_for_all(of, meeting, lock);
  *out = reinterpret_cast<MPI_Comm>(make(meeting.context, of.rank, of.members, Carries::notices));
  return call(of.rank, "Comm_dup");
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* out, MPI_Request* request) {
  const Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  const Meeting& meeting = come(of, nullptr, 0);
  *out = reinterpret_cast<MPI_Comm>(make(meeting.context, of.rank, of.members, Carries::data));
  Request made{of.rank, 0, 0, nullptr, 0, false};
  made.meeting = &meeting;
  made.members = of.members.size();
  *request = reinterpret_cast<MPI_Request>(start(made));
  return call(of.rank, "Comm_idup");
}
int MPI_Allgather(const void* mine, int count, MPI_Datatype type, void* all, int, MPI_Datatype, MPI_Comm comm) {
  Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  const std::size_t bytes = bytes_of(count, type);
  const Meeting& meeting = come(of, mine, bytes);
  wait_for_all(of, meeting, lock);
  auto* out = static_cast<std::byte*>(all);
  for (const int member : of.members) {
    std::memcpy(out, meeting.brought.at(member).data(), bytes);
    out += bytes;
  }
  return call(of.rank, "Allgather");
}
int MPI_Allreduce(const void* mine, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (type != MPI_INT || (op != MPI_MIN && op != MPI_MAX)) give_up("a reduction that it does not know");
  Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  const std::size_t bytes = bytes_of(count, type);
  const Meeting& meeting = come(of, mine, bytes);
  wait_for_all(of, meeting, lock);
  auto* const result = static_cast<int*>(out);
  std::memcpy(result, meeting.brought.begin()->second.data(), bytes);
  for (const auto& [member, brought] : meeting.brought)
    for (int i = 0; i < count; ++i) {
      int value = 0;
      std::memcpy(&value, brought.data() + sizeof value * static_cast<std::size_t>(i), sizeof value);
      result[i] = op == MPI_MIN ? std::min(result[i], value) : std::max(result[i], value);
    }
  return call(of.rank, "Allreduce");
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  const std::size_t bytes = bytes_of(count, type);
  const Meeting& meeting = come(of, data, bytes);
  wait_for_all(of, meeting, lock);
  if (const auto& brought = meeting.brought.at(of.members[static_cast<std::size_t>(root)]); bytes > 0)
    std::memcpy(data, brought.data(), bytes);
  return call(of.rank, "Bcast");
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  const Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  if (const int code = call(of.rank, "Isend"); code != MPI_SUCCESS) return code;
  *request = reinterpret_cast<MPI_Request>(post_send(of, of.context, data, bytes_of(count, type), to, tag));
  return MPI_SUCCESS;
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  const Lock lock(fake->mutex);
  const Comm& of = comm_of(comm);
  if (const int code = call(of.rank, "Irecv"); code != MPI_SUCCESS) return code;
  *request = reinterpret_cast<MPI_Request>(post_receive(of, of.context, data, bytes_of(count, type), from, tag));
  return MPI_SUCCESS;
}
int MPI_Iallgather(const void* mine, int count, MPI_Datatype type, void* all, int, MPI_Datatype, MPI_Comm comm,
                   MPI_Request* request) {
  const Lock lock(fake->mutex);
  const std::size_t bytes = bytes_of(count, type);
  auto* const out = static_cast<std::byte*>(all);
  if (bytes > 0) std::memcpy(out + bytes * static_cast<std::size_t>(comm_of(comm).rank), mine, bytes);
  return together(comm, request, "Iallgather", [&](const Comm& of, int peer, int turn, auto& parts) {
    std::byte* const piece = out + bytes * static_cast<std::size_t>(peer);
    parts.push_back(post_receive(of, -of.context, piece, bytes, peer, turn));
    parts.push_back(post_send(of, -of.context, mine, bytes, peer, turn));
  });
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  const Lock lock(fake->mutex);
  const std::size_t bytes = bytes_of(count, type);
  return together(comm, request, "Ibcast", [&](const Comm& of, int peer, int turn, auto& parts) {
    if (of.rank == root) parts.push_back(post_send(of, -of.context, data, bytes, peer, turn));
    if (peer == root) parts.push_back(post_receive(of, -of.context, data, bytes, root, turn));
  });
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status*) {
  const Lock lock(fake->mutex);
  if (const int code = call_on(1, request, "Test"); code != MPI_SUCCESS) return code;
  *done = *request == MPI_REQUEST_NULL || take(*request);
  return MPI_SUCCESS;
}
int MPI_Testsome(int count, MPI_Request* requests, int* ended, int* indices, MPI_Status*) {
  const Lock lock(fake->mutex);
  if (const int code = call_on(count, requests, "Testsome"); code != MPI_SUCCESS) return code;
  *ended = MPI_UNDEFINED;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    if (*ended == MPI_UNDEFINED) *ended = 0;
    if (take(requests[i])) indices[(*ended)++] = i;
  }
  return MPI_SUCCESS;
}
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status*) {
  const Lock lock(fake->mutex);
  if (const int code = call_on(count, requests, "Testall"); code != MPI_SUCCESS) return code;
  *done = std::all_of(requests, requests + count, [](MPI_Request one) {
    return one == MPI_REQUEST_NULL || is_done(*reinterpret_cast<Request*>(one));
  });
  for (int i = 0; *done && i < count; ++i)
    if (requests[i] != MPI_REQUEST_NULL) take(requests[i]);
  return MPI_SUCCESS;
}
int MPI_Cancel(MPI_Request* request) {
  const Lock lock(fake->mutex);
  auto* const receive = reinterpret_cast<Request*>(*request);
  for (auto& [context, receives] : fake->receives) std::erase(receives, receive);
  receive->done = true;
  return call(receive->rank, "Cancel");
}
int MPI_Wait(MPI_Request* request, MPI_Status*) {
  return MPI_Waitall(1, request, MPI_STATUSES_IGNORE);
}
int MPI_Waitall(int count, MPI_Request* requests, MPI_Status*) {
  Lock lock(fake->mutex);
  if (const int code = call_on(count, requests, "Waitall"); code != MPI_SUCCESS) return code;
  for (int i = 0; i < count; ++i)
    if (requests[i] != MPI_REQUEST_NULL &&
        !fake->changed.wait_for(lock, std::chrono::seconds(60), [&] { return take(requests[i]); }))
      give_up("a wait for a message that does not come");
  return MPI_SUCCESS;
}

}  // extern "C"
