#pragma once
// base/files/ holds all access to files: open files (here), mapped files (mapped_file.h), opening without blocking
// (input_file.h), creating files safely in folders where others may plant links, locking them, and the errors for
// refused writes (output_file.h), and replacing files atomically (atomic_file.h).
#include <unistd.h>

#include <utility>

namespace strata {

// Owns a file descriptor. -1 means none.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  // Closes the current descriptor and takes ownership of `fd`.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  // Gives up ownership, for a caller that must check whether close() succeeds.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace strata
