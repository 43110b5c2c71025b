#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "offload/io_options.h"

namespace strata::offload {

// One transfer between memory and a place in the drive's file. The completion carries the same `slot`.
struct Request {
  bool write = false;
  std::byte* data = nullptr;
  std::uint32_t size = 0;
  std::uint64_t offset = 0;  // offset in the file
  std::uint32_t slot = 0;
};

struct Completion {
  std::uint32_t slot = 0;
  int result = 0;  // bytes moved, or -errno
};

// The boundary between the engine and the kernel: one drive's requests. Only the drive's I/O thread creates and uses
// it, except for wake(). Does not own the file.
class Submitter {
 public:
  virtual ~Submitter() = default;
  // Lets transfers inside `memory` skip the kernel's per-request look-up. Replaces the previous registration. Returns 0
  // or an errno; ENOTSUP if this kind of submitter has no registration.
  virtual int register_memory(std::span<std::byte> memory) = 0;
  // Queues a request. No more than the queue depth may be in flight.
  virtual void submit(const Request& request) = 0;
  // Submits the queue to the kernel, sleeps until a request completes or wake() is called, and returns the number of
  // completions stored. `done` has room for the queue depth. Throws std::system_error if the queue itself fails.
  virtual std::size_t wait(std::span<Completion> done) = 0;
  // Ends a sleeping wait(), or the next one. Any thread may call it.
  virtual void wake() = 0;
};

// The three kinds, for the open file `descriptor`; see each source. Throw a std::system_error that names the failed
// call.
std::unique_ptr<Submitter> open_uring(int descriptor, int queue_depth, bool registered);
std::unique_ptr<Submitter> open_libaio(int descriptor, int queue_depth);
std::unique_ptr<Submitter> open_thread_pool(int descriptor, int queue_depth);

}  // namespace strata::offload
