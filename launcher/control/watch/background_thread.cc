#include "launcher/control/watch/background_thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace strata::launcher::control {
namespace {

constexpr std::size_t kMaxTexts = 64;

}  // namespace

void enter_background(const char* name) {
  sigset_t all;
  sigfillset(&all);
  // Signals for a thread's own faults stay unblocked, and so does that of a profiler.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF}) sigdelset(&all, signal);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  pthread_setname_np(pthread_self(), name);
  // On Linux, this applies only to the calling thread.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

MessageThread::MessageThread(Note say) : say_(std::move(say)) {
  thread_ = start_background_thread("strata-print", [this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (arrived_.wait(lock, stop, [this] { return !texts_.empty(); })) {
      const std::string text = std::move(texts_.front());
      texts_.pop_front();
      lock.unlock();
      say_(text);
      lock.lock();
    }
  });
}

MessageThread::~MessageThread() {
  thread_.request_stop();
  thread_.join();
}

void MessageThread::print(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (texts_.size() >= kMaxTexts) return;
    texts_.push_back(std::move(text));
  }
  arrived_.notify_one();
}

}  // namespace strata::launcher::control
