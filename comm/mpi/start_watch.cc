#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/number.h"
#include "comm/agreement.h"
#include "comm/mpi/start.h"

namespace strata::comm {
namespace {

constexpr const char* kVariable = "STRATA_CONNECT_SECONDS";
// The nodes of a large run do not start a program at the same time.
constexpr int kSeconds = 120, kMost = 86'400;
// A rank waits this much longer than the rank below it. If the lower rank has printed the message, the launcher ends
// this rank within that time.
constexpr std::chrono::seconds kTurn{2};
constexpr int kTurns = 15;

std::chrono::seconds connect_timeout() {
  const char* asked = std::getenv(kVariable);
  if (asked == nullptr || *asked == '\0') return std::chrono::seconds(kSeconds);
  const auto seconds = parse_number<int>(asked);
  if (!seconds || *seconds < 1 || *seconds > kMost)
    throw AgreedError(Exit::usage, fmt::format("{} is \"{}\" in the environment: set it to seconds from 1 to {}, or "
                                               "unset it",
                                               kVariable, asked, kMost));
  return std::chrono::seconds(*seconds);
}

}  // namespace

StartWatch::StartWatch(int rank, int ranks) {
  if (ranks < 2) return;
  thread_ = std::thread([this, rank, ranks, wait = connect_timeout()] { watch(wait, rank, ranks); });
}

StartWatch::~StartWatch() {
  {
    const std::lock_guard lock(mutex_);
    connected_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StartWatch::watch(std::chrono::seconds timeout, int rank, int ranks) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout + std::min(rank, kTurns) * kTurn, [&] { return connected_; })) return;
  const std::string text = fmt::format(
      "strata: rank {} of {} has waited {} s for the others, and some have not connected: start all ranks with the "
      "same "
      "program and command, or set {} if they need longer to start\n",
      rank, ranks, timeout.count(), kVariable);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  // exit() would destroy objects that the thread inside MPI_Init still uses.
  std::_Exit(static_cast<int>(Exit::failed));
}

}  // namespace strata::comm
