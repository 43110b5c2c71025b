#pragma once
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "offload/submitter.h"

namespace strata::offload {

enum class Fault { error, half, bits, never };

// A fault, and the number of its request (counted over all drives from 0, once armed).
struct FaultPlan {
  Fault fault = Fault::error;
  int error = EIO;  // of Fault::error
  int times = 1;    // requests in a row, from `at` on
  std::atomic<int> at{0};
  std::atomic<int> counted{-1};  // -1: not armed
  void arm(int number) {
    at = number;
    counted = 0;
  }
};

// A layer between a drive and the kernel that spoils one request or its result.
class FaultySubmitter final : public Submitter {
 public:
  FaultySubmitter(std::unique_ptr<Submitter> kernel, FaultPlan& plan) : kernel_(std::move(kernel)), plan_(plan) {}

  int register_memory(std::span<std::byte> memory) override { return kernel_->register_memory(memory); }

  void submit(const Request& r) override {
    const bool armed = plan_.counted >= 0;
    const int number = armed ? plan_.counted++ : -1;
    if (!armed || number < plan_.at || number >= plan_.at + plan_.times) return kernel_->submit(r);
    Request shorter = r;
    switch (plan_.fault) {
      case Fault::error:
        answers_.push_back({r.slot, -plan_.error});
        return;
      case Fault::half:  // to a place inside a page, as a buffered transfer that a signal ends
        shorter.size = std::max<std::uint32_t>(r.size / 2 / kPage * kPage, kPage);
        short_.push_back({r.slot, static_cast<int>(shorter.size) - 100});
        return kernel_->submit(shorter);
      case Fault::bits:
        spoiled_.push_back(r);
        return kernel_->submit(r);
      case Fault::never:
        return;
    }
  }

  std::size_t wait(std::span<Completion> done) override {
    std::size_t n = 0;
    for (const Completion& answer : answers_) done[n++] = answer;
    answers_.clear();
    if (n > 0) kernel_->wake();  // other queued requests still go to the kernel
    n += kernel_->wait(done.subspan(n));
    for (Completion& completion : done.first(n)) {
      const auto same = [&](const auto& entry) { return entry.slot == completion.slot; };
      if (const auto it = std::find_if(short_.begin(), short_.end(), same);
          it != short_.end() && completion.result > 0) {
        completion.result = it->result;
        short_.erase(it);
      }
      if (const auto it = std::find_if(spoiled_.begin(), spoiled_.end(), same); it != spoiled_.end()) {
        if (!it->write) it->data[it->size / 2] ^= std::byte{0x10};
        spoiled_.erase(it);
      }
    }
    return n;
  }

  void wake() override { kernel_->wake(); }

 private:
  std::unique_ptr<Submitter> kernel_;
  FaultPlan& plan_;
  std::vector<Completion> answers_;  // requests that the kernel never sees
  std::vector<Completion> short_;    // what to answer for requests that were cut
  std::vector<Request> spoiled_;
};

// Options for drives with the fault in `plan`.
inline IoOptions spoiled_by(FaultPlan& plan, IoOptions options) {
  options.wrap = [&plan](std::unique_ptr<Submitter> kernel, const IoMode&) {
    return std::make_unique<FaultySubmitter>(std::move(kernel), plan);
  };
  return options;
}

}  // namespace strata::offload
