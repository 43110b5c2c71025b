#include "device/ops/products/product.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/error.h"
#include "device/cuda/backend.h"
#include "device/cuda/lane_impl.h"
#include "device/cuda/libraries/matmul.h"

namespace strata::device::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kMaxAlignment = 16;  // more alignment makes no algorithm faster

std::size_t align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The largest power of two, up to 16, that divides every operand's address and the bytes of its rows.
int alignment_of(const ProductShape& s, const Product::Impl::Operands& x) {
  std::uintptr_t all = kMaxAlignment;
  for (const std::byte* p : {x.a.data, x.b.data, static_cast<const std::byte*>(x.c.data),
                             static_cast<const std::byte*>(x.epilogue_out.data), x.epilogue_in.data, x.bias.data})
    all |= reinterpret_cast<std::uintptr_t>(p);
  all |=
      static_cast<std::uintptr_t>(s.lda | s.ldb) * size_of(s.in) | static_cast<std::uintptr_t>(s.ldc) * size_of(s.out);
  return 1 << std::countr_zero(all);
}

class LtProduct final : public Product::Impl {
 public:
  explicit LtProduct(const ProductShape& s) : Impl(s) {}

  std::size_t workspace_bytes(int threads) override;
  void run(Lane& lane, const Operands& x) override;

 private:
  // The library's matmul for operands with this alignment, without the epilogue if that runs as a separate operation.
  struct Use {
    int alignment;
    bool apart;
    Matmul matmul;
  };
  // The library accepts only a bias of C's type.
  bool widens_bias() const { return shape.bias && shape.in != shape.out; }
  const Use& use_for(StreamLane& lane, int alignment);
  static std::optional<Matmul> prepare(StreamLane& lane, const AlgorithmKey& key);

  std::vector<Use> uses_;  // created in the first step; usually one
};

std::size_t LtProduct::workspace_bytes(int) {
  return kAlignment + kMatmulWorkspace + (widens_bias() ? align(static_cast<std::size_t>(shape.n) * sizeof(float)) : 0);
}

const LtProduct::Use& LtProduct::use_for(StreamLane& lane, int alignment) {
  for (const Use& use : uses_)
    if (use.alignment == alignment) return use;
  AlgorithmKey key{shape, alignment};
  if (shape.epilogue != Epilogue::none)
    if (auto fused = prepare(lane, key)) return uses_.emplace_back(Use{alignment, false, std::move(*fused)});
  key.shape.epilogue = Epilogue::none;
  auto plain = prepare(lane, key);
  if (!plain) fail(Exit::failed, "cuBLASLt has no algorithm for the product {}", key.text());
  return uses_.emplace_back(Use{alignment, shape.epilogue != Epilogue::none, std::move(*plain)});
}

// Empty if the library has none, or if the table says that a separate epilogue is faster.
std::optional<Matmul> LtProduct::prepare(StreamLane& lane, const AlgorithmKey& key) {
  const AlgorithmTable* const table = lane.algorithms();
  const std::string* const chosen = table ? table->find(key) : nullptr;
  if (!Matmul::fuses(key) || (chosen && *chosen == AlgorithmTable::kApart)) return std::nullopt;
  Matmul matmul(lane.cublaslt_handle(), key);
  if (chosen) {
    if (!matmul.choose(*chosen))
      fail(Exit::usage,
           "cuBLASLt refuses the algorithm that the table of {} has for the product {}: delete that table; the next "
           "run writes a new one",
           table->machine(), key.text());
    return matmul;
  }
  const auto proposals = matmul.candidates(1);
  if (proposals.empty() || !matmul.choose(proposals.front())) return std::nullopt;
  return matmul;
}

void LtProduct::run(Lane& lane, const Operands& x) {
  auto& on = static_cast<StreamLane&>(lane.impl());
  cudaStream_t const stream = on.stream();
  const auto address = reinterpret_cast<std::uintptr_t>(x.workspace.data);
  std::byte* const workspace = x.workspace.data + (align(address) - address);
  const std::byte* bias = x.bias.data;
  if (widens_bias()) {
    const View widened{workspace + kMatmulWorkspace, static_cast<std::size_t>(shape.n), shape.out};
    device::cast(lane, x.bias.sub(0, widened.size), widened);
    bias = widened.data;
  }
  const Use& use = use_for(on, alignment_of(shape, x));
  use.matmul.run(stream, x, bias, workspace);
  if (use.apart) run_epilogue(lane, x);
}

}  // namespace

std::unique_ptr<Product::Impl> make_product(Device, const ProductShape& shape) {
  return std::make_unique<LtProduct>(shape);
}

}  // namespace strata::device::cuda
