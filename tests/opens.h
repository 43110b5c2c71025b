#pragma once
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>

namespace strata::tests {

// Counts how often this process opens an existing file from now on. Use it with one thread at a time, because
// simultaneous opens may count as one.
class Opens {
 public:
  explicit Opens(const std::filesystem::path& file) : queue_(::inotify_init1(IN_NONBLOCK)) {
    // Watches closing, too, because the kernel merges equal events that follow each other.
    EXPECT_GE(::inotify_add_watch(queue_, file.c_str(), IN_OPEN | IN_CLOSE), 0) << file;
  }
  ~Opens() { ::close(queue_); }
  Opens(const Opens&) = delete;
  Opens& operator=(const Opens&) = delete;

  int count() {
    std::array<std::byte, 4096> events;
    for (;;) {
      const ssize_t bytes = ::read(queue_, events.data(), events.size());
      if (bytes <= 0) return count_;
      for (std::size_t at = 0; at < static_cast<std::size_t>(bytes); at += sizeof(inotify_event)) {
        inotify_event event;
        std::memcpy(&event, events.data() + at, sizeof event);
        count_ += (event.mask & IN_OPEN) != 0 ? 1 : 0;
        at += event.len;
      }
    }
  }

 private:
  int queue_, count_ = 0;
};

}  // namespace strata::tests
