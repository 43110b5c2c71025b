#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace strata::launcher {

// Writes lines in a thread of its own, so that a terminal or a file system that takes none holds nobody up. What does
// not fit into its queue is lost, and a line in its place says how much. Lines have a number that the caller gives
// them: a file, a stream.
class LineWriter {
 public:
  using Write = std::function<void(int to, const std::string& text)>;

  // most: bytes that may wait. patience: seconds that the end waits for what is queued; then the thread is left behind,
  // in which `write` may be in a call that never returns: what it uses has to be its own.
  LineWriter(std::string name, Write write, std::size_t most, double patience);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void add(int to, std::string text);
  // Waits for so many seconds at most until all is written. False if it is not.
  bool drain(double seconds);

 private:
  // Outlives this if the thread does.
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
    int lost_to = 0;  // of the first of the lost ones
    bool writing = false, over = false;
  };
  void tell_lost();

  std::shared_ptr<Queue> queue_;
  std::size_t most_;
  double patience_;
};

}  // namespace strata::launcher
