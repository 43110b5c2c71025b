#include "device/backend.h"

#include <cstring>
#include <new>

#include "device/cpu/backend.h"
#include "device/cuda/backend.h"
#include "tests/device/emulation/lane.h"
#include "tests/device/emulation/memory.h"

namespace strata::device {
namespace {

// Memory is aligned like pinned memory. Blocks are separate, so that AddressSanitizer detects accesses beyond their
// ends.
constexpr std::align_val_t kAlignment{4096};

std::byte* allocate_host(Device, std::size_t bytes) {
  return static_cast<std::byte*>(std::memset(::operator new(bytes, kAlignment), 0, bytes));
}
void release_host(Device, std::byte* data, std::size_t) noexcept {
  ::operator delete(data, kAlignment);
}

void copy(Device, std::byte* to, const std::byte* from, std::size_t bytes) {
  const emulation::Access access;
  std::memcpy(to, from, bytes);
}

// The CPU's product on device memory, in a host lane for which the emulated lane waits. Epilogues are separate kernels
// of the GPU.
class EmulatedProduct final : public Product::Impl {
 public:
  explicit EmulatedProduct(const ProductShape& product)
      : Impl(product), cpu_(cpu::make_product({}, without_epilogue(product))) {}
  std::size_t workspace_bytes(int threads) override { return cpu_->workspace_bytes(threads); }
  void run(Lane& lane, const Operands& x) override {
    auto& emulated = static_cast<emulation::EmulatedLane&>(lane.impl());
    emulated.submit([cpu = cpu_.get(), host = &emulated.host_lane(), x] {
      cpu->run(*host, x);
      host->synchronize();
    });
    run_epilogue(lane, x);
  }

 private:
  static ProductShape without_epilogue(ProductShape product) {
    product.epilogue = Epilogue::none;
    return product;
  }
  std::unique_ptr<Product::Impl> cpu_;
};

std::unique_ptr<Product::Impl> make_product(Device, const ProductShape& shape) {
  return std::make_unique<EmulatedProduct>(shape);
}

std::unique_ptr<Lane::Impl> make_lane(std::string name, Device device, int threads, int rank, AbortToken& abort) {
  return std::make_unique<emulation::EmulatedLane>(name, device, threads, rank, abort, cuda_backend()->operations);
}

}  // namespace

const Backend* cuda_backend() {
  static const Backend kBackend = {
      .operations =
          {
#define X(name) .name = cuda::name,
              STRATA_OPERATIONS(X)
#undef X
          },
      .make_lane = make_lane,
      .make_event = [](Device, bool host_waits) -> std::unique_ptr<Event::Twin> {
        return std::make_unique<emulation::CapturedRecord>(host_waits);
      },
      .make_fault_watch = nullptr,
      .capture = emulation::capture,
      .make_product = make_product,
      .attention_workspace = cuda::attention_workspace,
      .allocate = emulation::allocate,
      .allocate_host = allocate_host,
      .free = emulation::release,
      .free_host = release_host,
      .pin = nullptr,
      .unpin = nullptr,
      .copy = copy,
  };
  return &kBackend;
}

}  // namespace strata::device
