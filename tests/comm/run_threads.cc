#include "tests/comm/run_threads.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/thread.h"
#include "comm/shared_memory.h"
#include "comm/staged.h"

namespace strata::comm {
namespace {

// Keeps the ranks' memory until all have ended: a failing rank must not free memory that other ranks still read.
class KeptArenas {
 public:
  std::shared_ptr<const device::Arena> keep(device::Arena arena) {
    const std::lock_guard lock(mutex_);
    return arenas_.emplace_back(std::make_shared<device::Arena>(std::move(arena)));
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const device::Arena>> arenas_;
};

class ThreadsWorld final : public World {
 public:
  ThreadsWorld(ControlBlock control, int rank, KeptArenas& arenas, const std::vector<int>& nodes)
      : memory_(control, rank, token_, {}),
        own_(memory_.open(all_ranks(rank, control.ranks()), false)),
        arenas_(arenas),
        nodes_(nodes) {}

  int rank() const override { return memory_.rank(); }
  int size() const override { return memory_.size(); }
  int node_size() const override {
    return nodes_.empty() ? size() : static_cast<int>(std::ranges::count(nodes_, node()));
  }
  int node_rank() const override {
    return nodes_.empty() ? rank() : static_cast<int>(std::count(nodes_.begin(), nodes_.begin() + rank(), node()));
  }
  std::vector<int> nodes() const override { return nodes_; }
  std::string describe() const override { return "threads"; }
  AbortToken& abort_token() override { return token_; }

  device::Arena allocate_host(std::size_t bytes) override {
    const auto arena = arenas_.keep(device::Arena(bytes));
    const std::byte* base = arena->data();
    std::vector<const std::byte*> bases(static_cast<std::size_t>(size()));
    own_->exchange(reinterpret_cast<const std::byte*>(&base), sizeof base, reinterpret_cast<std::byte*>(bases.data()));
    memory_.add_arena(bytes, bases);
    return device::Arena::adopt(arena->data(), bytes, arena);
  }
  std::unique_ptr<Communicator> open(device::Lane& lane, const Group& group) override {
    return communicator_for(*this, lane, group, memory_.open(group, lane.device().kind == device::Kind::cpu));
  }
  std::vector<std::string> exchange(const std::string& mine) override { return own_->exchange_texts(mine); }
  void check_peers() override { memory_.check_peers(); }
  void report_failure(const std::string& cause, Exit code) override { memory_.report_failure(cause, code); }
  Failure failure() override { return memory_.failure(); }

 private:
  int node() const { return nodes_[static_cast<std::size_t>(rank())]; }

  AbortToken token_;
  SharedMemory memory_;
  std::unique_ptr<Collectives> own_;
  KeptArenas& arenas_;
  const std::vector<int> nodes_;
};

// The exception to pass on: the first one thrown. Exceptions that only say that another rank failed do not count.
class FirstException {
 public:
  void keep(std::exception_ptr e, bool aborted) {
    const std::lock_guard lock(mutex_);
    if (!exception_ || (aborted_ && !aborted)) {
      exception_ = std::move(e);
      aborted_ = aborted;
    }
  }
  void rethrow() {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
  bool aborted_ = false;
};

}  // namespace

void run_threads(int ranks, const std::function<void(World&)>& f, const std::vector<int>& nodes) {
  STRATA_CHECK_LT(0, ranks);
  STRATA_CHECK(nodes.empty() || nodes.size() == static_cast<std::size_t>(ranks));
  const device::Arena memory(ControlBlock::bytes(ranks));
  const ControlBlock control = ControlBlock::construct(memory.data(), ranks);
  KeptArenas arenas;
  FirstException first;
  const auto run_rank = [&](int rank) {
    ThreadsWorld world(control, rank, arenas, nodes);
    try {
      f(world);
    } catch (const Aborted& e) {
      first.keep(std::current_exception(), true);
      world.report_failure(e.what(), exit_code(e));
    } catch (const std::exception& e) {
      first.keep(std::current_exception(), false);
      world.report_failure(e.what(), exit_code(e));
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (int rank = 1; rank < ranks; ++rank)
      threads.push_back(
          start_thread(fmt::format("the thread of rank {}", rank), [&run_rank, rank] { run_rank(rank); }));
  } catch (const Error& error) {
    first.keep(std::current_exception(), false);
    control.report_failure({0, error.what(), error.code()});  // the ranks already started check for it
  }
  run_rank(0);
  for (auto& thread : threads) thread.join();
  first.rethrow();
}

}  // namespace strata::comm
