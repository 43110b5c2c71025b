// Blocking reads and writes in threads: this works wherever files do.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "offload/submitter.h"

namespace strata::offload {
namespace {

constexpr int kMaxThreads = 16;  // the number of requests that reach the drive at the same time

class ThreadPool final : public Submitter {
 public:
  // Delegates, so that if a later thread is refused, the destructor ends those already started.
  ThreadPool(int descriptor, int queue_depth) : ThreadPool(descriptor) {
    queued_.reserve(static_cast<std::size_t>(queue_depth));
    completed_.reserve(static_cast<std::size_t>(queue_depth));
    for (int i = 0; i < std::min(queue_depth, kMaxThreads); ++i)
      threads_.push_back(start_thread("a thread that reads and writes a drive", [this] { work(); }));
  }
  ~ThreadPool() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    request_.notify_all();
    for (std::jthread& thread : threads_) thread.join();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int register_memory(std::span<std::byte>) override { return ENOTSUP; }

  void submit(const Request& r) override {
    {
      const std::lock_guard lock(mutex_);
      queued_.push_back(r);
    }
    request_.notify_one();
  }

  std::size_t wait(std::span<Completion> done) override {
    std::unique_lock lock(mutex_);
    completion_.wait(lock, [&] { return woken_ || !completed_.empty(); });
    woken_ = false;
    const std::size_t stored = std::min(done.size(), completed_.size());
    const auto end = completed_.begin() + static_cast<std::ptrdiff_t>(stored);
    std::copy(completed_.begin(), end, done.begin());
    completed_.erase(completed_.begin(), end);
    return stored;
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    completion_.notify_one();
  }

 private:
  explicit ThreadPool(int descriptor) : descriptor_(descriptor) {}

  void work() {
    for (;;) {
      Request r;
      {
        std::unique_lock lock(mutex_);
        request_.wait(lock, [&] { return stop_ || !queued_.empty(); });
        if (stop_) return;
        r = queued_.front();
        queued_.erase(queued_.begin());
      }
      const auto offset = static_cast<off_t>(r.offset);
      const ssize_t n =
          r.write ? ::pwrite(descriptor_, r.data, r.size, offset) : ::pread(descriptor_, r.data, r.size, offset);
      const Completion completion{r.slot, n < 0 ? -errno : static_cast<int>(n)};
      {
        const std::lock_guard lock(mutex_);
        completed_.push_back(completion);
      }
      completion_.notify_one();
    }
  }

  int descriptor_;
  std::mutex mutex_;
  std::condition_variable request_, completion_;
  std::vector<Request> queued_;
  std::vector<Completion> completed_;
  bool woken_ = false, stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace

std::unique_ptr<Submitter> open_thread_pool(int descriptor, int queue_depth) {
  return std::make_unique<ThreadPool>(descriptor, queue_depth);
}

}  // namespace strata::offload
