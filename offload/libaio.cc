// Linux's older asynchronous I/O, for systems without io_uring. It is asynchronous only with O_DIRECT: buffered
// requests are carried out while they are submitted.
#include <libaio.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "base/files/descriptor.h"
#include "offload/submitter.h"

namespace strata::offload {
namespace {

class Libaio final : public Submitter {
 public:
  Libaio(int descriptor, int queue_depth)
      : descriptor_(descriptor),
        signal_(::eventfd(0, EFD_CLOEXEC)),
        requests_(static_cast<std::size_t>(queue_depth)),
        events_(requests_.size()) {
    if (signal_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    queued_.reserve(requests_.size());
    refused_.reserve(requests_.size());
    if (const int error = io_setup(queue_depth, &context_); error < 0)
      throw std::system_error(-error, std::generic_category(), "io_setup");
  }
  ~Libaio() override { io_destroy(context_); }
  Libaio(const Libaio&) = delete;
  Libaio& operator=(const Libaio&) = delete;

  int register_memory(std::span<std::byte>) override { return ENOTSUP; }

  void submit(const Request& r) override {
    iocb& block = requests_[r.slot];
    if (r.write)
      io_prep_pwrite(&block, descriptor_, r.data, r.size, static_cast<long long>(r.offset));
    else
      io_prep_pread(&block, descriptor_, r.data, r.size, static_cast<long long>(r.offset));
    // Completions raise the same eventfd as wake(), so that one read waits for both.
    io_set_eventfd(&block, signal_.get());
    block.data = &block;
    queued_.push_back(&block);
  }

  std::size_t wait(std::span<Completion> done) override {
    hand_over();
    std::uint64_t count = 0;
    if (refused_.empty() && ::read(signal_.get(), &count, sizeof(count)) < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "read of the eventfd");
    std::size_t stored = 0;
    for (const Completion& refused : refused_) done[stored++] = refused;
    refused_.clear();
    const auto room = static_cast<long>(done.size() - stored);
    timespec at_once{};
    const int n = io_getevents(context_, 0, room, events_.data(), &at_once);
    if (n < 0 && n != -EINTR) throw std::system_error(-n, std::generic_category(), "io_getevents");
    for (int i = 0; i < n; ++i) {
      const io_event& event = events_[static_cast<std::size_t>(i)];
      done[stored++] = {slot_of(event.obj), static_cast<int>(static_cast<long>(event.res))};
    }
    // A signal may have ended the call before it looked for completions. The count was consumed, so look again next
    // time.
    if (n == -EINTR) wake();
    return stored;
  }

  void wake() override {
    const std::uint64_t one = 1;
    (void)!::write(signal_.get(), &one, sizeof(one));  // fails only if the counter is full, which wakes the reader too
  }

 private:
  std::uint32_t slot_of(const iocb* block) const { return static_cast<std::uint32_t>(block - requests_.data()); }

  void hand_over() {
    std::size_t taken = 0;
    while (taken < queued_.size()) {
      const int n = io_submit(context_, static_cast<long>(queued_.size() - taken), queued_.data() + taken);
      if (n > 0)
        taken += static_cast<std::size_t>(n);
      else if (n != -EINTR)  // the value concerns the first request; EAGAIN is reported and tried again
        refused_.push_back({slot_of(queued_[taken++]), n});
    }
    queued_.clear();
  }

  int descriptor_;
  Descriptor signal_;
  io_context_t context_ = nullptr;
  std::vector<iocb> requests_;  // by slot
  std::vector<iocb*> queued_;
  std::vector<Completion> refused_;
  std::vector<io_event> events_;
};

}  // namespace

std::unique_ptr<Submitter> open_libaio(int descriptor, int queue_depth) {
  return std::make_unique<Libaio>(descriptor, queue_depth);
}

}  // namespace strata::offload
