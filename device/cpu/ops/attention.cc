#include "device/ops/attention.h"

#include <algorithm>

#include "device/cpu/backend.h"
#include "device/cpu/kernels/attention.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kDeltaRows = 64;
// Backward takes the key tiles of so many key heads in turn: few enough that their rows stay in cache from tile to
// tile, enough that a tile seldom waits for the one before it to add to dq.
constexpr std::size_t kHeadsTogether = 8;
constexpr std::size_t align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where the parts of the workspace begin, in bytes from its first aligned one.
struct Layout {
  std::size_t delta, turns, dq_sum, scratch, per_worker;
  explicit Layout(const AttentionCall& c) {
    const std::size_t rows = c.batch * c.heads * c.seq;
    delta = 0;
    turns = delta + align(rows * sizeof(float));
    dq_sum = turns + align(c.batch * c.heads * c.tiles() * sizeof(std::uint32_t));
    scratch = dq_sum + rows * c.padded() * sizeof(float);
    per_worker = align(attention_scratch(c.padded()) * sizeof(float));
  }
};

AttentionCall describe(const AttentionShape& s) {
  AttentionCall c{};
  c.batch = s.batch;
  c.seq = s.seq;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.window = s.window >= s.seq ? 0 : s.window;
  c.q_stride = s.q_stride;
  c.k_stride = s.k_stride;
  c.v_stride = s.v_stride;
  c.scale = s.scale;
  c.keep_scale = 1.0f;
  return c;
}

// Read when the work runs: the step's seed and micro-batch are on the device.
void set_dropout(AttentionCall& c, const Dropout& dropout) {
  if (dropout.probability == 0) return;
  c.random = {dropout.scalars->seed, dropout.scalars->first_micro_batch + dropout.micro_batch, dropout.site};
  c.threshold = drop_threshold(dropout.probability);
  c.keep_scale = 1.0f / (1.0f - dropout.probability);
}

std::byte* first_aligned(View workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  return workspace.data + (align(address) - address);
}

}  // namespace

std::size_t attention_workspace(const AttentionShape& shape, DType, bool, int threads) {
  const Layout layout(describe(shape));
  return layout.scratch + layout.per_worker * static_cast<std::size_t>(threads) + kAlignment;
}

std::string prepare_attention(Lane&, const AttentionShape&, DType, const Dropout&) {
  return "own kernels";
}

void attention_forward(Lane& lane, const AttentionShape& shape, ConstView q, ConstView k, ConstView v, View o, View lse,
                       const Dropout& dropout, View workspace) {
  AttentionCall call = describe(shape);
  call.q = q.data;
  call.k = k.data;
  call.v = v.data;
  call.o = o.data;
  call.lse = lse.as<float>();
  const auto dtype = static_cast<std::size_t>(q.dtype);
  submit(lane, [call, dropout, workspace, dtype](Team& team) {
    AttentionCall c = call;
    set_dropout(c, dropout);
    const Layout layout(c);
    std::byte* const scratch = first_aligned(workspace);
    const auto kernel = attention_kernels().forward[dtype];
    const std::size_t across = c.batch * c.heads;
    const std::size_t blocks = (c.seq + kForwardQueries - 1) / kForwardQueries;
    team.run(across * blocks, [&](std::size_t task, int worker) {
      const std::size_t block = blocks - 1 - task % blocks, head = task / blocks;  // the longest first
      kernel(c, head / c.heads, head % c.heads, block,
             reinterpret_cast<float*>(scratch + layout.per_worker * static_cast<std::size_t>(worker)));
    });
  });
}

void attention_backward(Lane& lane, const AttentionShape& shape, ConstView q, ConstView k, ConstView v, ConstView o,
                        ConstView lse, ConstView do_, View dq, View dk, View dv, const Dropout& dropout,
                        View workspace) {
  AttentionCall call = describe(shape);
  std::byte* const base = first_aligned(workspace);
  const Layout layout(call);
  call.q = q.data;
  call.k = k.data;
  call.v = v.data;
  call.o_read = o.data;
  call.d_o = do_.data;
  call.dq = dq.data;
  call.dk = dk.data;
  call.dv = dv.data;
  call.lse = const_cast<float*>(lse.as<float>());
  call.delta = reinterpret_cast<float*>(base + layout.delta);
  call.turns = reinterpret_cast<std::uint32_t*>(base + layout.turns);
  call.dq_sum = reinterpret_cast<float*>(base + layout.dq_sum);
  const auto dtype = static_cast<std::size_t>(q.dtype);
  submit(lane, [call, dropout, base, dtype](Team& team) {
    AttentionCall c = call;
    set_dropout(c, dropout);
    const Layout parts(c);
    const AttentionKernels& kernels = attention_kernels();
    std::fill_n(c.turns, c.batch * c.heads * c.tiles(), 0u);
    team.for_range(c.batch * c.seq, kDeltaRows,
                   [&](std::size_t begin, std::size_t end) { kernels.delta[dtype](c, begin, end); });
    const std::size_t across = c.batch * c.kv_heads;
    team.run(across * c.tiles(), [&](std::size_t task, int worker) {
      const std::size_t first = task / (kHeadsTogether * c.tiles()) * kHeadsTogether;
      const std::size_t heads = std::min(kHeadsTogether, across - first), rest = task - first * c.tiles();
      const std::size_t head = first + rest % heads;
      kernels.backward[dtype](
          c, head / c.kv_heads, head % c.kv_heads, rest / heads,
          reinterpret_cast<float*>(base + parts.scratch + parts.per_worker * static_cast<std::size_t>(worker)));
    });
  });
}

}  // namespace strata::device::cpu
