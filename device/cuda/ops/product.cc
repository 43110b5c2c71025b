#include "device/ops/product.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "device/cuda/backend.h"
#include "device/cuda/lane_impl.h"
#include "device/cuda/matmul.h"
#include "device/error.h"

namespace strata::device::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kMostAlignment = 16;  // more makes no algorithm faster

std::size_t align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The largest power of two, to 16, that divides every operand's address and the bytes of its rows.
int alignment_of(const ProductShape& s, const Product::Impl::Operands& x) {
  std::uintptr_t all = kMostAlignment;
  for (const std::byte* p : {x.a.data, x.b.data, static_cast<const std::byte*>(x.c.data),
                             static_cast<const std::byte*>(x.activated.data), x.bias.data})
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
  // A way the product is used, with the library's matmul for it; none where its epilogue is an operation of its own.
  struct Use {
    AlgorithmKey key;
    std::optional<Matmul> matmul;
  };
  // The library takes a bias of C's type alone.
  bool widens_bias() const { return shape.bias && shape.in != shape.out; }
  const Use& use_for(StreamLane& lane, Epilogue epilogue, int alignment);
  std::optional<Matmul> prepare(StreamLane& lane, const AlgorithmKey& key);
  void activate(Lane& lane, const Operands& x) const;

  std::vector<Use> uses_;  // made in the first step: as a rule one
};

std::size_t LtProduct::workspace_bytes(int) {
  return kAlignment + kMatmulWorkspace + (widens_bias() ? align(static_cast<std::size_t>(shape.n) * sizeof(float)) : 0);
}

const LtProduct::Use& LtProduct::use_for(StreamLane& lane, Epilogue epilogue, int alignment) {
  for (const Use& use : uses_)
    if (use.key.epilogue == epilogue && use.key.alignment == alignment) return use;
  const AlgorithmKey key{shape, epilogue, alignment};
  return uses_.emplace_back(Use{key, prepare(lane, key)});
}

std::optional<Matmul> LtProduct::prepare(StreamLane& lane, const AlgorithmKey& key) {
  const bool may_be_apart = key.epilogue != Epilogue::none;
  const AlgorithmTable* const table = lane.algorithms();
  const std::string* const chosen = table ? table->find(key) : nullptr;
  if (may_be_apart && (!Matmul::fuses(key) || (chosen && *chosen == AlgorithmTable::kApart))) return std::nullopt;
  Matmul matmul(lane.cublaslt_handle(), key);
  if (chosen) {
    if (!matmul.choose(*chosen))
      fail(Exit::usage,
           "cuBLASLt refuses the algorithm that the table of {} has for the product {}: delete that table, and it is "
           "made anew",
           table->machine(), key.text());
    return matmul;
  }
  const auto proposals = matmul.candidates(1);
  if (!proposals.empty() && matmul.choose(proposals.front())) return matmul;
  if (!may_be_apart) fail(Exit::failed, "cuBLASLt has no algorithm for the product {}", key.text());
  return std::nullopt;
}

// What lies between the rows of C stays as it is; rows side by side, as they nearly always are, are one operation.
void LtProduct::activate(Lane& lane, const Operands& x) const {
  const auto row = static_cast<std::size_t>(shape.n), stride = static_cast<std::size_t>(shape.ldc);
  const auto rows = static_cast<std::size_t>(shape.m);
  if (row == stride) return device::gelu_forward(lane, x.c.sub(0, rows * row), x.activated.sub(0, rows * row));
  for (std::size_t i = 0; i < rows; ++i)
    device::gelu_forward(lane, x.c.sub(i * stride, row), x.activated.sub(i * stride, row));
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
  const int alignment = alignment_of(shape, x);
  const Epilogue epilogue = x.activated ? Epilogue::gelu_tanh : Epilogue::none;
  const Use* use = &use_for(on, epilogue, alignment);
  const bool apart = !use->matmul;
  if (apart) use = &use_for(on, Epilogue::none, alignment);
  use->matmul->run(stream, x, bias, workspace);
  if (apart) activate(lane, x);
}

}  // namespace

std::unique_ptr<Product::Impl> make_product(Device, const ProductShape& shape) {
  return std::make_unique<LtProduct>(shape);
}

}  // namespace strata::device::cuda
