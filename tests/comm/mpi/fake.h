#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <string>
#include <vector>

// How tests control the fake of MPI (fake.cc) and observe it. Ranks are threads. Data moves only in calls of the
// receiving rank, and only as much per call as the test allows, so that a message can stop in its middle. Notices are
// the messages on communicators of MPI_Comm_dup; data are those on communicators of MPI_Comm_idup.
namespace fake_mpi {

inline constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

// Runs f(rank) as `ranks` threads, joins them, and returns what each threw. `nodes`: the node of each rank; empty: all
// are on one. At first nothing goes wrong. The settings below hold until the next run(); `before` makes them before the
// threads start.
std::vector<std::exception_ptr> run(int ranks, const std::function<void(int)>& f, std::vector<int> nodes = {},
                                    const std::function<void()>& before = {});
// The same, and rethrows the first.
void run_well(int ranks, const std::function<void(int)>& f, std::vector<int> nodes = {},
              const std::function<void()>& before = {});

// Makes the calling thread one of a rank's threads. Threads that run() starts already are.
void belong_to(int rank);

// This many bytes of every data message arrive per call of the receiver. `newest_first`: only those of the newest
// message between two ranks, so that messages do not end in the order in which they began.
void set_bytes_per_call(std::size_t bytes, bool newest_first = false);
// Data messages of at most this many bytes do not wait for their receivers (4,096 at first).
void set_eager_limit(std::size_t bytes);
// Data from one rank to another stops once this many bytes have arrived there.
void stop_data(int from, int to, std::size_t after);
// After a notice was sent, the receiver does not see it in its next `calls` checks.
void delay_notices(int from, int to, std::size_t calls);
// From now on this call fails on the rank. `name`: without "MPI_".
void fail_calls(int rank, const std::string& name);
// The level that MPI_Init_thread provides instead of MPI_THREAD_MULTIPLE.
void provide_threads(int level);

// How often a rank made this call. `name`: without "MPI_".
std::size_t calls(int rank, const std::string& name);
// Data from one rank to another: the bytes that have arrived, and the most messages that were on their way at once.
std::size_t arrived(int from, int to);
std::size_t most_on_their_way(int from, int to);
// A rank's requests that have not been waited for, and its communicators that were not freed.
std::size_t open_requests(int rank);
std::size_t open_communicators(int rank);

}  // namespace fake_mpi
