#pragma once
// base/files/ is what is done with files: held open (here), mapped (mapped_file.h), read without waiting
// (input_file.h), made where nobody planted a link (output_file.h), written so that nobody sees half of one
// (atomic_file.h), locked (file_lock.h), and what is said if the system refuses a write (refused_write.h).
#include <unistd.h>

#include <utility>

namespace strata {

// Owns a file descriptor; -1: none.
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
  // Closes what it owns, and owns `fd` from then on.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  // Gives up what it owns: whether it could be closed is then the caller's to see.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace strata
