#pragma once
#include <nccl.h>

// What tests tell the fake of NCCL (fake.cc) and ask it. Ranks are threads, each with a GPU of the fake of CUDA whose
// number is the rank's.
namespace fake_nccl {

// What goes wrong, in calls after set(): the `at`-th of what is named, counted from 0 over a rank's communicators.
enum class Fault {
  none,
  connect_hangs,    // ncclCommInitRankConfig never ends
  kernel_hangs,     // on the GPU, and what comes after it
  kernel_fails,     // the communicator's asynchronous error is ncclRemoteError, "the link is cut"; its kernel hangs
  call_is_refused,  // a call in a group returns ncclInvalidArgument, "a bad pointer"
  registration_is_refused,  // of buffers
  finalize_hangs,
};
void set(int rank, Fault fault, int at = 0);
// Each call in a group takes so long, in microseconds.
void slow_down(int microseconds);
// What ncclGetVersion says on the calling thread; 0: 2.29.3.
void set_version(int version);
// Nothing goes wrong any more. Called between tests, when no communicator is left.
void reset();

// Communicators that were neither destroyed nor aborted; those of them that know buffers.
int alive();
int registered();
// Calls that the real NCCL would still wait in: each waited for a GPU on which another communicator's kernel hung, and
// was let go after a second.
int stuck();

}  // namespace fake_nccl
