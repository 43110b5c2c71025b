#include "launcher/launch/ranks/line_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/thread.h"

namespace strata::launcher {

LineWriter::LineWriter(std::string name, Write write, std::size_t most, double patience)
    : queue_(std::make_shared<Queue>()), most_(most), patience_(patience) {
  queue_->write = std::move(write);
  start_thread(name, [queue = queue_] { queue->work(); }).detach();
}

LineWriter::~LineWriter() {
  (void)drain(patience_);
  const std::lock_guard lock(queue_->mutex);
  queue_->over = true;
  queue_->changed.notify_all();
}

void LineWriter::add(int to, std::string text) {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->bytes + text.size() > most_) {
    if (queue_->lost++ == 0) queue_->lost_to = to;
    return;
  }
  tell_lost();
  queue_->bytes += text.size();
  queue_->lines.push_back({to, std::move(text)});
  queue_->changed.notify_all();
}

void LineWriter::tell_lost() {
  if (queue_->lost == 0) return;
  std::string text = fmt::format("strata: missing here, because the output was blocked for too long: {}\n",
                                 queue_->lost == 1 ? "a line" : fmt::format("{} lines", queue_->lost));
  queue_->lost = 0;
  queue_->bytes += text.size();
  queue_->lines.push_back({queue_->lost_to, std::move(text)});
}

bool LineWriter::drain(double seconds) {
  std::unique_lock lock(queue_->mutex);
  tell_lost();
  queue_->changed.notify_all();
  return queue_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [this] { return queue_->lines.empty() && !queue_->writing; });
}

void LineWriter::Queue::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return over || !lines.empty(); });
    // When the destructor's time is up, the remaining lines are dropped.
    if (over) return;
    const Line line = std::move(lines.front());
    lines.pop_front();
    bytes -= line.text.size();
    writing = true;
    lock.unlock();
    write(line.to, line.text);
    lock.lock();
    writing = false;
    changed.notify_all();
  }
}

}  // namespace strata::launcher
