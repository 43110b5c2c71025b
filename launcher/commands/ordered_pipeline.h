#pragma once
#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "launcher/screen/progress.h"
#include "text/documents.h"

namespace strata::launcher {

// Threads take parts of the input in turn and write their results in the order of the parts.
template <typename Tokens>
class OrderedPipeline {
 public:
  using Work = std::function<void(const text::DocumentPart&, Tokens&)>;

  // bytes: the size of all inputs; 0 if unknown. write: called by one thread at a time.
  OrderedPipeline(text::DocumentReader& reader, std::uint64_t bytes, std::function<void(const Tokens&)> write)
      : reader_(reader), bytes_(bytes), write_(std::move(write)) {}

  // make_work: called once per thread. Throws the error that comes first in the order of the input.
  void run(std::size_t threads, const std::function<Work()>& make_work) {
    const auto work = [&] {
      try {
        const Work make = make_work();
        text::DocumentPart part;
        Tokens tokens;
        while (step(make, part, tokens)) {
        }
      } catch (...) {  // thrown by make_work()
        const std::lock_guard reading(reading_), writing(writing_);
        ended_ = true;
        if (!error_) error_ = std::current_exception();
      }
    };
    std::vector<std::jthread> others;
    try {
      for (std::size_t i = 1; i < threads; ++i)
        others.push_back(start_thread(fmt::format("thread {} of --threads {}", i + 1, threads), work));
    } catch (...) {
      const std::lock_guard lock(reading_);
      ended_ = true;
      throw;
    }
    work();
    others.clear();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Processes one part. False if no part is left, or an earlier one failed.
  bool step(const Work& make, text::DocumentPart& part, Tokens& tokens) {
    std::exception_ptr error;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(reading_);
      number = taken_;
      try {
        if (ended_ || !reader_.next(part)) return false;
      } catch (...) {
        error = std::current_exception();
        ended_ = true;
      }
      ++taken_;
    }
    if (!error) {
      try {
        done_ += part.text.size();
        make(part, tokens);
        activity_.show(done_, bytes_);
      } catch (...) {
        error = std::current_exception();
      }
    }
    std::unique_lock lock(writing_);
    turn_.wait(lock, [&] { return written_ == number; });
    if (!error && !error_) {
      try {
        write_(tokens);
      } catch (...) {
        error = std::current_exception();
      }
    }
    // Turns are in the order of the input, so this keeps the error of the earliest part, whichever thread failed first.
    if (error && !error_) error_ = error;
    ++written_;
    turn_.notify_all();
    return !error_;
  }

  text::DocumentReader& reader_;
  std::uint64_t bytes_;
  std::function<void(const Tokens&)> write_;
  std::atomic<std::uint64_t> done_ = 0;
  Activity activity_{"tokenizing", Activity::Unit::bytes};
  std::mutex reading_, writing_;
  std::condition_variable turn_;
  std::uint64_t taken_ = 0, written_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace strata::launcher
