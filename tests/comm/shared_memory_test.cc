#include "comm/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>

#include "device/memory.h"

namespace strata::comm {
namespace {

constexpr std::size_t kPage = 4096;

// Acts between two checks of a waiting rank. The other rank's presence lies in a page that cannot be read, so a check
// enters a signal handler, which raises the signal, leaves, and lets the check continue.
class BetweenLooks {
 public:
  explicit BetweenLooks(Signal& signal) : signal_(signal) {
    // The block is placed so that the presence of the ranks, right after the failure's header, begins a page.
    const std::size_t header = ControlBlock::bytes(0);
    block_ = memory_.at(kPage - header % kPage);
    presence_ = block_ + header;
    ControlBlock::construct(block_, 2);
    current_ = this;
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) { current_->look_at(info->si_addr); };
    EXPECT_EQ(::sigaction(SIGSEGV, &action, &before_), 0);
    EXPECT_EQ(::mprotect(presence_, kPage, PROT_NONE), 0);
  }
  ~BetweenLooks() {
    EXPECT_EQ(::sigaction(SIGSEGV, &before_, nullptr), 0);
    EXPECT_EQ(::mprotect(presence_, kPage, PROT_READ | PROT_WRITE), 0);
  }
  BetweenLooks(const BetweenLooks&) = delete;
  BetweenLooks& operator=(const BetweenLooks&) = delete;

  ControlBlock block() const { return ControlBlock::attach(block_, 2); }
  int looks() const { return looks_; }

 private:
  void look_at(void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address), page = reinterpret_cast<std::uintptr_t>(presence_);
    if (at < page || at >= page + kPage || ++looks_ > 1) std::abort();  // a fault of the test itself
    ::mprotect(presence_, kPage, PROT_READ | PROT_WRITE);
    signal_.raise(1);
    block().leave(1);
  }

  inline static BetweenLooks* current_ = nullptr;
  Signal& signal_;
  device::Arena memory_{ControlBlock::bytes(2) + 2 * kPage};
  std::byte *block_ = nullptr, *presence_ = nullptr;
  std::atomic<int> looks_{0};
  struct sigaction before_ {};
};

// A rank that raises its signal and leaves at once has done everything that others wait for.
TEST(SharedMemory, ARankThatSignalsAndLeavesIsNotReportedLost) {
  Signal signal;
  BetweenLooks other(signal);
  AbortToken token;
  {
    const SharedMemory memory(other.block(), 0, token, {});
    EXPECT_NO_THROW(memory.wait(signal, 1, 1));
  }
  EXPECT_EQ(other.looks(), 1);
  EXPECT_FALSE(token.is_set());
}

// Two ranks wait for a dead third one: the first that notices prints the loss, and the other does not.
TEST(SharedMemory, TheFirstRankThatNoticesALossPrintsIt) {
  const Process dead{2, 0, 0};  // no process has the number 0
  const device::Arena memory(ControlBlock::bytes(3));
  const ControlBlock block = ControlBlock::construct(memory.data(), 3);
  const Signal signal;
  std::vector<Failure> printed;
  AbortToken tokens[2];
  {
    SharedMemory first(block, 0, tokens[0], {dead}), second(block, 1, tokens[1], {dead});
    for (SharedMemory* rank : {&first, &second})
      rank->when_lost([&](const Failure& failure) { printed.push_back(failure); });
    EXPECT_THROW(second.wait(signal, 1, 2), Aborted);
    ASSERT_EQ(printed.size(), 1u);
    EXPECT_EQ(printed[0].rank, 2);
    EXPECT_NE(printed[0].cause.find("ended without a message"), std::string::npos);
    EXPECT_THROW(first.wait(signal, 1, 2), Aborted);
    first.report_failure("another", Exit::failed);
  }
  EXPECT_EQ(printed.size(), 1u);
}

}  // namespace
}  // namespace strata::comm
