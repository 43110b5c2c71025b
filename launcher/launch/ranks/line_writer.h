#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace strata::launcher {

// Writes lines in its own thread, so that a terminal or file system that hangs delays no other thread. Lines that do
// not fit into the queue are lost; a line in their place says how much is missing. `to` is the caller's number of a
// destination: a file or a stream.
class LineWriter {
 public:
  using Write = std::function<void(int to, const std::string& text)>;

  // most: bytes that may wait. patience: seconds that the destructor waits for queued lines. After that it leaves the
  // thread running, possibly in a call of `write` that never returns, so `write` must own what it uses.
  LineWriter(std::string name, Write write, std::size_t most, double patience);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void add(int to, std::string text);
  // Waits at most that many seconds until everything is written. False if something is not.
  bool drain(double seconds);

 private:
  // Outlives this object if the thread does.
  struct Queue {
    struct Line {
      int to;
      std::string text;
    };
    void work();

    Write write;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Line> lines;
    std::size_t bytes = 0, lost = 0;
    int lost_to = 0;  // destination of the first lost line
    bool writing = false, over = false;
  };
  void tell_lost();

  std::shared_ptr<Queue> queue_;
  std::size_t most_;
  double patience_;
};

}  // namespace strata::launcher
