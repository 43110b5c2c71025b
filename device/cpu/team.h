#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <type_traits>
#include <vector>

namespace strata::device::cpu {

// The threads of one lane: the lane's own and `threads - 1` workers. Splits an operation into tasks whose number and
// boundaries depend only on shapes. So bits depend neither on the number of threads nor on the thread that runs a task.
class Team {
 public:
  // Throws Error{failed} if the system refuses a thread.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }

  // Calls f(task, worker) for every task in [0, tasks), with worker in [0, threads()). Returns when all are done. Only
  // the lane's thread may call it; f must not throw.
  template <typename F>
  void run(std::size_t tasks, F&& f) {
    using Fn = std::remove_reference_t<F>;
    auto call = [](void* context, std::size_t task, int worker) { (*static_cast<Fn*>(context))(task, worker); };
    run_erased(tasks, call, const_cast<std::remove_const_t<Fn>*>(&f));
  }

  // Calls f(begin, end) over [0, size), cut into grains of `grain` elements; for elementwise work.
  template <typename F>
  void for_range(std::size_t size, std::size_t grain, F&& f) {
    run((size + grain - 1) / grain, [&](std::size_t task, int) {
      const std::size_t begin = task * grain, end = begin + grain < size ? begin + grain : size;
      f(begin, end);
    });
  }

 private:
  Team() = default;
  using Call = void (*)(void*, std::size_t, int);
  void run_erased(std::size_t tasks, Call call, void* context);
  void work(int worker);
  void take_tasks(int worker);

  int threads_ = 1;
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::size_t tasks_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<int> busy_{0};
  bool stop_ = false;
  std::vector<std::jthread> workers_;
};

// The elements in one task of elementwise work: small enough to balance, large enough to amortise a task's overhead.
inline constexpr std::size_t kGrain = 32768;

// Calls f(row) for every row of `width` elements, in tasks of whole rows.
template <typename F>
void for_rows(Team& team, std::size_t rows, std::size_t width, F&& f) {
  team.for_range(rows, std::max<std::size_t>(1, kGrain / width), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace strata::device::cpu
