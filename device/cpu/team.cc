#include "device/cpu/team.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <omp.h>

#include "base/thread.h"

namespace strata::device::cpu {
namespace {

// Spins for about 20 us, because most operations follow each other faster than that. Then it sleeps, so that
// oversubscribed ranks make progress.
constexpr int kSpins = 400;

template <typename T>
void wait_while(const std::atomic<T>& value, T unwanted) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != unwanted) return;
    _mm_pause();
  }
  value.wait(unwanted, std::memory_order_acquire);
}

}  // namespace

// Delegates, so that if a later worker is refused, the destructor ends those already started.
Team::Team(int threads) : Team() {
  threads_ = threads;
  for (int worker = 1; worker < threads; ++worker)
    workers_.push_back(
        start_thread(fmt::format("thread {} of a lane's {}", worker + 1, threads), [this, worker] { work(worker); }));
}

Team::~Team() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Team::run_erased(std::size_t tasks, Call call, void* context) {
  if (threads_ == 1 || tasks <= 1) {
    for (std::size_t task = 0; task < tasks; ++task) call(context, task, 0);
    return;
  }
  call_ = call;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  take_tasks(0);
  for (int left = busy_.load(std::memory_order_acquire); left != 0; left = busy_.load(std::memory_order_acquire))
    wait_while(busy_, left);
}

void Team::take_tasks(int worker) {
  for (std::size_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;)
    call_(context_, task, worker);
}

void Team::work(int worker) {
  omp_set_num_threads(1);  // for this thread only: oneDNN must not start a team inside a tile
  for (std::uint32_t seen = 0;;) {
    wait_while(epoch_, seen);
    ++seen;
    if (stop_) return;
    take_tasks(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_all();
  }
}

}  // namespace strata::device::cpu
