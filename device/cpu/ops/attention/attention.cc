#include "device/ops/attention/attention.h"

#include <algorithm>
#include <cstring>

#include "base/index.h"
#include "device/cpu/backend.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/attention/attention.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/ops/attention/attention_tasks.h"
#include "device/cpu/team.h"

namespace strata::device::cpu {
namespace {

constexpr std::size_t kBufferAlignment = 64;
constexpr std::size_t kDeltaRows = 64;
constexpr std::size_t align_buffer(std::size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// The offsets of the workspace's parts, in bytes from its first aligned one. They are the same on every processor, so
// that plans are too.
struct Layout {
  std::size_t delta, turns, dq_sum, scratch, per_worker;
  Layout(const AttentionCall& c, int threads, DType dtype) {
    const std::size_t rows = c.batch * c.heads * c.seq;
    delta = 0;
    turns = delta + align_buffer(rows * sizeof(float));
    dq_sum = turns + align_buffer(rows * sizeof(std::uint32_t));
    scratch = dq_sum + rows * c.padded() * sizeof(float);
    std::size_t floats = AttentionTasks(c, threads, task_tiles(c.padded())).scratch();
    if (dtype == DType::bf16)
      floats = std::max(floats, AttentionTasks(c, threads, amx_task_tiles(c.padded())).amx_scratch());
    per_worker = align_buffer(floats * sizeof(float));
  }
};

AttentionTasks tasks_of(const AttentionCall& c, int threads, DType dtype) {
  const bool amx = dtype == DType::bf16 && has_amx();
  return {c, threads, amx ? amx_task_tiles(c.padded()) : task_tiles(c.padded())};
}

AttentionCall describe(const AttentionShape& s, const RowRange* documents = nullptr) {
  AttentionCall c{};
  c.documents = documents;
  c.batch = s.batch;
  c.seq = s.seq;
  c.heads = s.heads;
  c.layer_heads = static_cast<std::uint32_t>(s.layer_heads > 0 ? s.layer_heads : s.heads);
  c.first_head = static_cast<std::uint32_t>(s.first_head);
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

// Called when the work runs: only then do the scalars hold the step's seed and micro-batch.
void set_dropout(AttentionCall& c, const Dropout& dropout) {
  if (dropout.probability == 0) return;
  c.random = {dropout.scalars->seed, dropout.scalars->first_micro_batch + dropout.micro_batch, dropout.site};
  c.threshold = drop_threshold(dropout.probability);
  c.keep_scale = 1.0f / (1.0f - dropout.probability);
}

AttentionRows rows_of(const RowRange& document, std::size_t batch) {
  return {batch, document.first, document.end - document.first};
}

// If the column violated device/row_range.h, tasks would write outside of their rows, or wait forever.
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
  return workspace.data + (align_buffer(address) - address);
}

}  // namespace

std::size_t attention_workspace(const AttentionShape& shape, DType dtype, bool, int threads) {
  const AttentionCall call = describe(shape);
  const Layout layout(call, threads, dtype);
  return layout.scratch + layout.per_worker * static_cast<std::size_t>(threads) + kBufferAlignment;
}

std::string prepare_attention(Lane&, const AttentionShape&, DType dtype, const Dropout&) {
  if (dtype != DType::bf16) return "own kernels";
  if (has_amx()) return "own kernels, by AMX";
  return avx512_bf16_products() ? "own kernels, by AVX512_BF16" : "own kernels, by FMA of widened operands";
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
    const AttentionTasks tasks = tasks_of(c, team.threads(), dtype);
    const Layout layout(c, team.threads(), dtype);
    std::byte* const scratch = first_aligned(workspace);
    const auto kernel = attention_kernels().forward[index(dtype)];
    const std::size_t rows = tasks.forward_rows(), element = size_of(dtype);
    check_documents(c);
    team.run(tasks.forward_tasks(), [&](std::size_t number, int worker) {
      const AttentionTasks::Forward task = tasks.forward(number);
      auto* const mine = reinterpret_cast<float*>(scratch + layout.per_worker * static_cast<std::size_t>(worker));
      for (TileIterator at(c.documents + task.batch * c.seq, c.seq, task.begin, rows); at.next();) {
        if (at.document.end > 0) {
          kernel(c, rows_of(at.document, task.batch), {task.head, task.heads, at.row - at.document.first, rows}, mine);
          continue;
        }
        clear(c, c.o, task.batch * c.seq + at.row, c.heads * c.head_dim, task.head, task.heads, element);
        for (std::size_t head = task.head; head < task.head + task.heads; ++head)
          c.lse[(task.batch * c.heads + head) * c.seq + at.row] = 0;
      }
    });
  });
}

void attention_backward(Lane& lane, const AttentionShape& shape, const RowRange* documents, ConstView q, ConstView k,
                        ConstView v, ConstView o, ConstView lse, ConstView do_, View dq, View dk, View dv,
                        const Dropout& dropout, View workspace) {
  AttentionCall call = describe(shape, documents);
  std::byte* const base = first_aligned(workspace);
  const DType dtype = q.dtype;
  const AttentionTasks tasks = tasks_of(call, lane.threads(), dtype);
  const Layout layout(call, lane.threads(), dtype);
  call.q = q.data;
  call.k = k.data;
  call.v = v.data;
  call.o_read = o.data;
  call.d_o = do_.data;
  call.dq = dq.data;
  call.dk = dk.data;
  call.dv = dv.data;
  call.fp32_key_gradients = shape.fp32_key_gradients;
  call.lse = const_cast<float*>(lse.as<float>());
  call.delta = reinterpret_cast<float*>(base + layout.delta);
  call.turns = reinterpret_cast<std::uint32_t*>(base + layout.turns);
  call.dq_sum = reinterpret_cast<float*>(base + layout.dq_sum);
  submit(lane, [call, tasks, layout, dropout, base, dtype](Team& team) {
    AttentionCall c = call;
    set_dropout(c, dropout);
    const AttentionKernels& kernels = attention_kernels();
    team.for_range(c.batch * c.seq, kDeltaRows,
                   [&](std::size_t begin, std::size_t end) { kernels.delta[index(dtype)](c, begin, end); });
    const std::size_t rows = tasks.backward_rows(), element = size_of(dtype), group = c.heads / c.kv_heads;
    team.run(tasks.backward_tasks(), [&](std::size_t number, int worker) {
      const AttentionTasks::Backward task = tasks.backward(number);
      auto* const mine =
          reinterpret_cast<float*>(base + layout.scratch + layout.per_worker * static_cast<std::size_t>(worker));
      for (TileIterator at(c.documents + task.batch * c.seq, c.seq, task.begin, rows); at.next();) {
        if (at.document.end > 0) {
          kernels.backward[index(dtype)](c, rows_of(at.document, task.batch), task.kv_head, at.row - at.document.first,
                                         tasks.key_tiles(), mine);
          continue;
        }
        const std::size_t row = task.batch * c.seq + at.row;
        clear(c, c.dq, row, c.q_stride, task.kv_head * group, group, element);
        const std::size_t of_keys = c.fp32_key_gradients ? sizeof(float) : element;
        clear(c, c.dk, row, c.k_stride, task.kv_head, 1, of_keys);
        clear(c, c.dv, row, c.v_stride, task.kv_head, 1, of_keys);
      }
    });
  });
}

void rope(Lane& lane, const RopeShape& shape, View x, const std::uint32_t* positions, ConstView cos, ConstView sin,
          bool inverse) {
  const std::size_t used = shape.heads * shape.head_dim, half = shape.head_dim / 2;
  const auto *c = cos.as<float>(), *s = sin.as<float>();
  const auto rotate = rope_kernels().rotate[index(x.dtype)];
  submit(lane, [=](Team& team) {
    for_rows(team, shape.rows, used, [&](std::size_t row) {
      const std::size_t angle = positions[row] * half;
      STRATA_CHECK_LE(angle + half, cos.size);
      rotate(x.sub(row * shape.stride, used).data, shape.heads, half, c + angle, s + angle, inverse);
    });
  });
}

}  // namespace strata::device::cpu
