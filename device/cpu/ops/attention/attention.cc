#include "device/ops/attention/attention.h"

#include <algorithm>
#include <cstring>

#include "device/cpu/backend.h"
#include "device/cpu/grain.h"
#include "device/cpu/kernels/attention/attention.h"
#include "device/cpu/lane_impl.h"

namespace strata::device::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kDeltaRows = 64;
// Backward takes the key tiles of this many key heads in turn: few enough that their rows stay in cache from tile to
// tile, enough that a tile seldom waits for the previous one to add to dq.
constexpr std::size_t kHeadsTogether = 8;
constexpr std::size_t align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The offsets of the workspace's parts, in bytes from its first aligned one.
struct Layout {
  std::size_t delta, turns, dq_sum, scratch, per_worker;
  explicit Layout(const AttentionCall& c) {
    const std::size_t rows = c.batch * c.heads * c.seq;
    delta = 0;
    turns = delta + align(rows * sizeof(float));
    dq_sum = turns + align(rows * sizeof(std::uint32_t));
    scratch = dq_sum + rows * c.padded() * sizeof(float);
    per_worker = align(attention_scratch(c.padded()) * sizeof(float));
  }
};

AttentionCall describe(const AttentionShape& s, const RowRange* documents = nullptr) {
  AttentionCall c{};
  c.documents = documents;
  c.batch = s.batch;
  c.seq = s.seq;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.behind = s.behind();
  c.ahead = s.ahead();
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

AttentionRows rows_of(const RowRange& document, std::size_t batch) {
  return {batch, document.first, document.end - document.first};
}

// With a column that violates device/row_range.h, tasks would write outside of their rows, or wait forever.
void check_documents(const AttentionCall& c) {
  for (std::size_t row = 0; row < c.batch * c.seq; ++row) {
    const RowRange& at = c.documents[row];
    const std::size_t within = row % c.seq;
    if (at == RowRange{}) continue;
    STRATA_CHECK_LE(at.first, within);
    STRATA_CHECK_LT(within, at.end);
    STRATA_CHECK_LE(at.end, c.seq);
    if (within > at.first) STRATA_CHECK(at == c.documents[row - 1]);
  }
}

// Sets `heads` heads of one row to zero.
void clear(const AttentionCall& c, void* base, std::size_t row, std::size_t stride, std::size_t head, std::size_t heads,
           std::size_t element) {
  std::memset(static_cast<std::byte*>(base) + (row * stride + head * c.head_dim) * element, 0,
              heads * c.head_dim * element);
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

void attention_forward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                       ConstView v, View o, View lse, const Dropout& dropout, View workspace) {
  AttentionCall call = describe(shape, documents);
  call.q = q.data;
  call.k = k.data;
  call.v = v.data;
  call.o = o.data;
  call.lse = lse.as<float>();
  const DType dtype = q.dtype;
  submit(lane, [call, dropout, workspace, dtype](Team& team) {
    AttentionCall c = call;
    set_dropout(c, dropout);
    const Layout layout(c);
    std::byte* const scratch = first_aligned(workspace);
    const auto kernel = attention_kernels().forward[index(dtype)];
    const std::size_t windows = (c.seq + kForwardQueries - 1) / kForwardQueries, element = size_of(dtype);
    check_documents(c);
    team.run(c.batch * c.heads * windows, [&](std::size_t task, int worker) {
      const std::size_t window = windows - 1 - task % windows;  // the longest first
      const std::size_t batch = task / windows / c.heads, head = task / windows % c.heads;
      auto* const mine = reinterpret_cast<float*>(scratch + layout.per_worker * static_cast<std::size_t>(worker));
      for (TileWalk at(c.documents + batch * c.seq, c.seq, window * kForwardQueries, kForwardQueries); at.next();) {
        if (at.document.end > 0) {
          kernel(c, rows_of(at.document, batch), head, at.row - at.document.first, mine);
          continue;
        }
        clear(c, c.o, batch * c.seq + at.row, c.heads * c.head_dim, head, 1, element);
        c.lse[(batch * c.heads + head) * c.seq + at.row] = 0;
      }
    });
  });
}

void attention_backward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                        ConstView v, ConstView o, ConstView lse, ConstView do_, View dq, View dk, View dv,
                        const Dropout& dropout, View workspace) {
  AttentionCall call = describe(shape, documents);
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
  const DType dtype = q.dtype;
  submit(lane, [call, dropout, base, dtype](Team& team) {
    AttentionCall c = call;
    set_dropout(c, dropout);
    const Layout parts(c);
    const AttentionKernels& kernels = attention_kernels();
    team.for_range(c.batch * c.seq, kDeltaRows,
                   [&](std::size_t begin, std::size_t end) { kernels.delta[index(dtype)](c, begin, end); });
    const std::size_t windows = (c.seq + kAttentionTile - 1) / kAttentionTile, across = c.batch * c.kv_heads;
    const std::size_t element = size_of(dtype), group = c.heads / c.kv_heads;
    team.run(across * windows, [&](std::size_t task, int worker) {
      const std::size_t first = task / (kHeadsTogether * windows) * kHeadsTogether;
      const std::size_t heads = std::min(kHeadsTogether, across - first), rest = task - first * windows;
      const std::size_t batch = (first + rest % heads) / c.kv_heads, kv_head = (first + rest % heads) % c.kv_heads;
      auto* const mine =
          reinterpret_cast<float*>(base + parts.scratch + parts.per_worker * static_cast<std::size_t>(worker));
      for (TileWalk at(c.documents + batch * c.seq, c.seq, rest / heads * kAttentionTile, kAttentionTile); at.next();) {
        if (at.document.end > 0) {
          kernels.backward[index(dtype)](c, rows_of(at.document, batch), kv_head, at.row - at.document.first, mine);
          continue;
        }
        const std::size_t row = batch * c.seq + at.row;
        clear(c, c.dq, row, c.q_stride, kv_head * group, group, element);
        clear(c, c.dk, row, c.k_stride, kv_head, 1, element);
        clear(c, c.dv, row, c.v_stride, kv_head, 1, element);
      }
    });
  });
}

}  // namespace strata::device::cpu
