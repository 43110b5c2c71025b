#pragma once
#include <nccl.h>

// How tests control and query the fake of NCCL (fake.cc). Ranks are threads, and each has the GPU with its number in
// the fake of CUDA.
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
// Clears all faults. Called between tests, when no communicator exists.
void reset();

// The numbers of communicators that were neither destroyed nor aborted, and of those that have registered buffers.
int alive();
int registered();
// Calls in which the real NCCL would still wait: each waited for a GPU on which another communicator's kernel hung, and
// was released after a second.
int stuck();

}  // namespace fake_nccl
