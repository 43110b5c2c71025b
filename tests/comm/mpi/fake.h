#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <string>
#include <vector>

// What tests tell the fake of MPI (fake.cc) and ask it. Ranks are threads. Data move only in calls of the rank that
// receives them, as much per call as the test allows, so that a message can stand still in its middle. Notices are what
// travels on communicators of MPI_Comm_dup, data what travels on those of MPI_Comm_idup.
namespace fake_mpi {

inline constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

// Runs f(rank) as `ranks` threads and joins them; what each threw. `nodes`: the node of each rank; empty: all are on
// one. At first nothing goes wrong, and what the calls below set holds until the next run(); `before` sets it before
// the threads start.
std::vector<std::exception_ptr> run(int ranks, const std::function<void(int)>& f, std::vector<int> nodes = {},
                                    const std::function<void()>& before = {});
// The same, and rethrows the first.
void run_well(int ranks, const std::function<void(int)>& f, std::vector<int> nodes = {},
              const std::function<void()>& before = {});

// Makes the calling thread one of a rank's; those that run() starts are so already.
void belong_to(int rank);

// Of every message of data, so many bytes arrive per call of the receiver. `newest_first`: only of the last of those
// between two ranks, so that messages end in another order than they began.
void set_bytes_per_call(std::size_t bytes, bool newest_first = false);
// Data from one rank to another stand still once so many bytes have arrived there.
void stop_data(int from, int to, std::size_t after);
// Notices from one rank to another are not seen in the receiver's next `calls` looks while one is on its way.
void delay_notices(int from, int to, std::size_t calls);
// From now on a call fails on a rank, by its name without "MPI_".
void fail_calls(int rank, const std::string& name);
// What MPI_Init_thread provides, in place of MPI_THREAD_MULTIPLE.
void provide_threads(int level);

// How often a rank made a call, by its name without "MPI_".
std::size_t calls(int rank, const std::string& name);
// Of data, from one rank to another: how many bytes have arrived, and the most messages that were on their way at once.
std::size_t arrived(int from, int to);
std::size_t most_on_their_way(int from, int to);
// A rank's requests that have not been waited for, and its communicators that were not freed.
std::size_t open_requests(int rank);
std::size_t open_communicators(int rank);

}  // namespace fake_mpi
