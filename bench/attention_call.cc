// Runs attention forward and backward once, on operands from a file, for comparisons with peers
// (bench/attention_error.py).
//   attention_call IN OUT
// IN: eight 64-bit integers (batch, seq, heads, kv_heads, head_dim, window, causal, dtype as DType numbers them), then
// documents [batch * seq] as pairs of 32-bit integers (first row, end), then q, k, v and the gradient of o, dense.
// OUT: o, dq, dk, dv.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <vector>

#include "base/abort.h"
#include "device/lane.h"
#include "device/ops/attention/attention.h"

namespace strata::device {
namespace {

struct Tensor {
  std::vector<std::byte> bytes;
  DType dtype;
  Tensor(std::size_t size, DType type) : bytes(size * size_of(type)), dtype(type) {}
  View view() { return {bytes.data(), bytes.size() / size_of(dtype), dtype}; }
};

void read(std::istream& in, void* to, std::size_t bytes) {
  in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
}

int call(const char* from, const char* to) {
  std::ifstream in(from, std::ios::binary);
  std::uint64_t head[8] = {};
  read(in, head, sizeof head);
  const auto& [batch, seq, heads, kv_heads, head_dim, window, causal, type] = head;
  const auto dtype = static_cast<DType>(type);
  const std::size_t rows = batch * seq, wide = heads * head_dim, narrow = kv_heads * head_dim;
  std::vector<RowRange> documents(rows);
  read(in, documents.data(), rows * sizeof(RowRange));
  Tensor q(rows * wide, dtype), k(rows * narrow, dtype), v(rows * narrow, dtype), d_o(rows * wide, dtype);
  for (Tensor* x : {&q, &k, &v, &d_o}) read(in, x->bytes.data(), x->bytes.size());
  if (!in) {
    std::cerr << from << " ends before the operands that its first numbers announce\n";
    return 1;
  }
  Tensor o(rows * wide, dtype), dq(rows * wide, dtype), dk(rows * narrow, dtype), dv(rows * narrow, dtype);
  Tensor lse(rows * heads, DType::fp32);
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim));
  const AttentionShape shape{batch,  seq,    heads, kv_heads, head_dim,    wide,
                             narrow, narrow, scale, window,   causal != 0, true};
  constexpr int kThreads = 2;
  Tensor workspace(attention_workspace({}, shape, dtype, false, kThreads) / sizeof(float) + 1, DType::fp32);
  AbortToken abort;
  Lane lane("call", kThreads, 0, abort);
  const StepScalars scalars{};
  const Dropout none{0, 0, 0, &scalars};
  attention_forward(lane, shape, documents.data(), q.view(), k.view(), v.view(), o.view(), lse.view(), none,
                    workspace.view());
  attention_backward(lane, shape, documents.data(), q.view(), k.view(), v.view(), o.view(), lse.view(), d_o.view(),
                     dq.view(), dk.view(), dv.view(), none, workspace.view());
  lane.synchronize();
  std::ofstream out(to, std::ios::binary);
  for (const Tensor* x : {&o, &dq, &dk, &dv})
    out.write(reinterpret_cast<const char*>(x->bytes.data()), static_cast<std::streamsize>(x->bytes.size()));
  return out ? 0 : 1;
}

}  // namespace
}  // namespace strata::device

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: attention_call IN OUT\n";
    return 2;
  }
  return strata::device::call(argv[1], argv[2]);
}
