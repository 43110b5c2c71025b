#pragma once
#include <nccl.h>

// What tests tell the fake of NCCL (fake.cc) and ask it. Ranks are threads, each with a GPU of the fake of CUDA whose
// number is the rank's.
namespace fake_nccl {

// A fault in later calls: it happens at the `at`-th such event, counted from 0 over all communicators of a rank.
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
// Each call in a group takes this many microseconds.
void slow_down(int microseconds);
// The version that ncclGetVersion returns on the calling thread; 0: 2.29.3.
void set_version(int version);
// Nothing goes wrong any more. Called between tests, when no communicator is left.
void reset();

// The numbers of communicators that were neither destroyed nor aborted, and of those that have registered buffers.
int alive();
int registered();
// Calls in which the real NCCL would still wait: each waited for a GPU on which another communicator's kernel hung, and
// was released after a second.
int stuck();

}  // namespace fake_nccl
