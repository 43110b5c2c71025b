// io_uring (Axboe, "Efficient IO with io_uring"): requests and completions pass through two rings shared with the
// kernel, so one system call submits a batch and collects another.
#include <liburing.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "offload/submitter.h"

namespace strata::offload {
namespace {

constexpr std::uint64_t kWake = ~std::uint64_t{0};
constexpr std::size_t kLargestRegistered = std::size_t{1} << 30;  // the kernel's limit for one registered buffer

[[noreturn]] void raise(int error, const char* call) {
  throw std::system_error(error, std::generic_category(), call);
}

class Uring final : public Submitter {
 public:
  Uring(int descriptor, int queue_depth, bool registered) : descriptor_(descriptor), wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (wake_.get() < 0) raise(errno, "eventfd");
    const auto entries = static_cast<unsigned>(queue_depth) + 2;  // plus the wake-up, which may be queued twice
    // One thread submits, and the kernel processes completions only when that thread asks, so it is never interrupted.
    io_uring_params params{};
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    int error = io_uring_queue_init_params(entries, &ring_, &params);
    if (error == -EINVAL) {  // the kernel is older than 6.1
      params = {};
      error = io_uring_queue_init_params(entries, &ring_, &params);
    }
    if (error < 0) raise(-error, "io_uring_setup");
    if (registered) {
      error = io_uring_register_files(&ring_, &descriptor_, 1);
      if (error < 0) {
        io_uring_queue_exit(&ring_);
        raise(-error, "io_uring_register");
      }
      fixed_file_ = true;
    }
    arm_wake();
  }
  ~Uring() override { io_uring_queue_exit(&ring_); }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  int register_memory(std::span<std::byte> memory) override {
    if (!memory_.empty()) (void)io_uring_unregister_buffers(&ring_);
    memory_ = {};
    std::vector<iovec> buffers;
    for (std::size_t at = 0; at < memory.size(); at += kLargestRegistered)
      buffers.push_back({memory.data() + at, std::min(kLargestRegistered, memory.size() - at)});
    if (buffers.empty()) return 0;
    const int error = io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (error == 0) memory_ = memory;
    return -error;
  }

  void submit(const Request& r) override {
    io_uring_sqe* entry = next_entry();
    const int file = fixed_file_ ? 0 : descriptor_;
    if (const int buffer = buffer_of(r); buffer >= 0) {
      if (r.write)
        io_uring_prep_write_fixed(entry, file, r.data, r.size, r.offset, buffer);
      else
        io_uring_prep_read_fixed(entry, file, r.data, r.size, r.offset, buffer);
    } else if (r.write) {
      io_uring_prep_write(entry, file, r.data, r.size, r.offset);
    } else {
      io_uring_prep_read(entry, file, r.data, r.size, r.offset);
    }
    if (fixed_file_) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, r.slot);
  }

  std::size_t wait(std::span<Completion> done) override {
    const int error = io_uring_submit_and_wait(&ring_, 1);
    // Requests that the kernel did not take stay queued and are submitted with the next wait.
    if (error < 0 && error != -EINTR && error != -EAGAIN && error != -EBUSY) raise(-error, "io_uring_enter");
    std::size_t stored = 0;
    io_uring_cqe* entry = nullptr;
    while (stored < done.size() && io_uring_peek_cqe(&ring_, &entry) == 0) {
      if (entry->user_data == kWake)
        arm_wake();
      else
        done[stored++] = {static_cast<std::uint32_t>(entry->user_data), entry->res};
      io_uring_cqe_seen(&ring_, entry);
    }
    return stored;
  }

  void wake() override {
    const std::uint64_t one = 1;
    // Fails only if the counter is full, which wakes the reader too.
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

 private:
  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    STRATA_CHECK(entry != nullptr);
    return entry;
  }
  void arm_wake() {
    io_uring_sqe* entry = next_entry();
    io_uring_prep_read(entry, wake_.get(), &wake_count_, sizeof(wake_count_), 0);
    io_uring_sqe_set_data64(entry, kWake);
  }
  // Index of the registered buffer that holds the complete request, or -1.
  int buffer_of(const Request& r) const {
    if (r.data < memory_.data() || r.data + r.size > memory_.data() + memory_.size()) return -1;
    const std::size_t first = static_cast<std::size_t>(r.data - memory_.data()) / kLargestRegistered;
    const std::size_t last = static_cast<std::size_t>(r.data - memory_.data() + r.size - 1) / kLargestRegistered;
    return first == last ? static_cast<int>(first) : -1;
  }

  int descriptor_;
  Descriptor wake_;
  std::uint64_t wake_count_ = 0;
  io_uring ring_{};
  bool fixed_file_ = false;
  std::span<std::byte> memory_;  // registered memory
};

}  // namespace

std::unique_ptr<Submitter> open_uring(int descriptor, int queue_depth, bool registered) {
  return std::make_unique<Uring>(descriptor, queue_depth, registered);
}

}  // namespace strata::offload
