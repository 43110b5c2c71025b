#include "device/cuda/libraries/cudnn_attention.h"

// Included before the frontend's header, which must not see it.
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "device/cuda/libraries/cudnn.h"
#include "device/cuda/libraries/library.h"

namespace strata::device::cuda {
namespace {

namespace fe = cudnn_frontend;

constexpr std::size_t kOldest = 90000;  // cuDNN 9.0: deterministic backward of grouped queries
constexpr std::size_t kMaxHeadDim = 128;
constexpr std::size_t kMaxWorkspace = std::size_t{4} << 30;

std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

std::size_t workspace_bound(const AttentionShape& s) {
  const std::size_t rows = s.batch * s.heads * round_up(s.seq, 128);
  const std::size_t score_gradients = rows * round_up(s.seq, 128) * 2;
  // Sums of d_o * o, and dk and dv of every query head, at most in fp32 (cuDNN 9.19 holds them in 16 bits if heads
  // share keys).
  return score_gradients + rows * (1 + 2 * s.head_dim) * sizeof(float) + (std::size_t{2} << 20);
}

// The names of a graph's operands.
enum Operand : std::int64_t { kQ = 1, kK, kV, kO, kStats, kDo, kDq, kDk, kDv, kOperands };

struct Graph {
  fe::graph::Graph graph;
  std::size_t workspace = 0;
  std::unordered_map<std::int64_t, void*> operands;  // the newest call's; the set of keys never changes

  void run(cudnnHandle_t handle, const char* what, View space) {
    STRATA_CHECK_LE(workspace, space.bytes());
    if (auto status = graph.execute(handle, operands, space.data); status.is_bad())
      fail(Exit::failed, "cuDNN's attention, {}: {}", what, status.get_message());
  }
};

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::graph::Tensor_attributes describe(Operand operand, const AttentionShape& s, std::size_t heads, std::size_t stride) {
  const auto n = [](std::size_t x) { return static_cast<std::int64_t>(x); };
  return fe::graph::Tensor_attributes()
      .set_uid(operand)
      .set_dim({n(s.batch), n(heads), n(s.seq), n(s.head_dim)})
      .set_stride({n(s.seq * stride), n(s.head_dim), n(stride), 1});
}
fe::graph::Tensor_attributes describe_stats(const AttentionShape& s) {
  const auto n = [](std::size_t x) { return static_cast<std::int64_t>(x); };
  return fe::graph::Tensor_attributes()
      .set_uid(kStats)
      .set_dim({n(s.batch), n(s.heads), n(s.seq), 1})
      .set_stride({n(s.heads * s.seq), n(s.seq), 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}
void set_output(const Tensor& tensor, const fe::graph::Tensor_attributes& like) {
  tensor->set_output(true).set_uid(like.get_uid()).set_dim(like.get_dim()).set_stride(like.get_stride());
}

void prepare(fe::graph::Graph& graph, DType dtype) {
  graph.set_io_data_type(dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

void describe_forward(fe::graph::Graph& graph, const AttentionShape& s) {
  auto [o, stats] = graph.sdpa(
      graph.tensor(describe(kQ, s, s.heads, s.q_stride)), graph.tensor(describe(kK, s, s.kv_heads, s.k_stride)),
      graph.tensor(describe(kV, s, s.kv_heads, s.v_stride)),
      fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true).set_causal_mask(true).set_attn_scale(
          s.scale));
  set_output(o, describe(kO, s, s.heads, s.heads * s.head_dim));
  set_output(stats, describe_stats(s));
  stats->set_data_type(fe::DataType_t::FLOAT);
}

void describe_backward(fe::graph::Graph& graph, const AttentionShape& s) {
  const std::size_t width = s.heads * s.head_dim;
  auto [dq, dk, dv] = graph.sdpa_backward(
      graph.tensor(describe(kQ, s, s.heads, s.q_stride)), graph.tensor(describe(kK, s, s.kv_heads, s.k_stride)),
      graph.tensor(describe(kV, s, s.kv_heads, s.v_stride)), graph.tensor(describe(kO, s, s.heads, width)),
      graph.tensor(describe(kDo, s, s.heads, width)), graph.tensor(describe_stats(s)),
      fe::graph::SDPA_backward_attributes()
          .set_name("backward")
          .set_causal_mask(true)
          .set_attn_scale(s.scale)
          .set_deterministic_algorithm(true));
  set_output(dq, describe(kDq, s, s.heads, s.q_stride));
  set_output(dk, describe(kDk, s, s.kv_heads, s.k_stride));
  set_output(dv, describe(kDv, s, s.kv_heads, s.v_stride));
}

// Returns why cuDNN cannot build the graph, or nothing.
std::string build(Graph& g, cudnnHandle_t handle) {
  if (auto status = g.graph.build(handle, {fe::HeurMode_t::A}); status.is_bad())
    return status.get_message().empty() ? "it gives no reason" : status.get_message();
  std::int64_t bytes = 0;
  if (auto status = g.graph.get_workspace_size(bytes); status.is_bad()) return status.get_message();
  g.workspace = static_cast<std::size_t>(bytes);
  return {};
}

// A shape as a map key.
using Key = std::tuple<std::array<std::size_t, 8>, float, DType>;
Key key_of(const AttentionShape& s, DType dtype) {
  return {{s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.q_stride, s.k_stride, s.v_stride}, s.scale, dtype};
}

class FusedAttention final : public CudnnAttention {
 public:
  explicit FusedAttention(cudaStream_t stream) {
    try {
      if (const std::size_t version = cudnn().cudnnGetVersion(); version < kOldest) {
        missing_ = fmt::format("cuDNN {} is older than 9.0", library_version_text(version));
        return;
      }
      handle_ = make_cudnn_handle(stream);
    } catch (const Error& error) {
      missing_ = error.what();
    }
  }

  std::string name() const override { return cudnn_text(); }

  const std::string& refusal(const AttentionShape& shape, DType dtype) override {
    return missing_.empty() ? of(shape, dtype).refusal : missing_;
  }

  void forward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, View o, View lse,
               View workspace) override {
    Graph& g = of(shape, q.dtype).forward;
    set(g, {{kQ, q.data}, {kK, k.data}, {kV, v.data}, {kO, o.data}, {kStats, lse.data}});
    g.run(handle_.get(), "forward", workspace);
  }

  void backward(const AttentionShape& shape, ConstView q, ConstView k, ConstView v, ConstView o, ConstView lse,
                ConstView do_, View dq, View dk, View dv, View workspace) override {
    Graph& g = of(shape, q.dtype).backward;
    set(g, {{kQ, q.data},
            {kK, k.data},
            {kV, v.data},
            {kO, o.data},
            {kStats, lse.data},
            {kDo, do_.data},
            {kDq, dq.data},
            {kDk, dk.data},
            {kDv, dv.data}});
    g.run(handle_.get(), "backward", workspace);
  }

 private:
  struct Built {
    Graph forward, backward;
    std::string refusal;
  };

  static void set(Graph& g, std::initializer_list<std::pair<Operand, const std::byte*>> operands) {
    for (const auto& [operand, data] : operands) g.operands[operand] = const_cast<std::byte*>(data);
  }

  Built& of(const AttentionShape& shape, DType dtype) {
    const auto [at, fresh] = built_.try_emplace(key_of(shape, dtype));
    Built& b = at->second;
    if (!fresh) return b;
    prepare(b.forward.graph, dtype);
    prepare(b.backward.graph, dtype);
    describe_forward(b.forward.graph, shape);
    describe_backward(b.backward.graph, shape);
    std::string why = build(b.forward, handle_.get());
    if (why.empty()) why = build(b.backward, handle_.get());
    if (!why.empty()) b.refusal = fmt::format("{} refuses: {}", name(), why);
    for (const Graph* g : {&b.forward, &b.backward})
      if (b.refusal.empty() && g->workspace > workspace_bound(shape))
        b.refusal = fmt::format("{} needs {} bytes of workspace, and {} were planned", name(), g->workspace,
                                workspace_bound(shape));
    return b;
  }

  std::string missing_;
  CudnnHandle handle_;
  std::map<Key, Built> built_;
};

}  // namespace

std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream) {
  return std::make_unique<FusedAttention>(stream);
}

std::string cudnn_text() {
  try {
    return "cuDNN " + library_version_text(cudnn().cudnnGetVersion());
  } catch (const Error&) {  // none was found
    return "";
  }
}

std::string needs_own_kernels(const AttentionShape& s, DType dtype, const Dropout& dropout) {
  if (dtype == DType::fp32) return "fp32 is computed in fp32";
  if (dropout.probability > 0) return "dropout uses the same masks as on the CPU";
  if (s.packed) return "sequences of several documents";
  if (s.fp32_key_gradients) return "shards share its keys, whose gradients are fp32";
  if (!s.causal) return "attention is not causal";
  if (s.window != 0 && s.window < s.seq) return "sliding window";
  if (s.head_dim % 8 != 0 || s.head_dim > kMaxHeadDim)
    return fmt::format("heads of {} elements are not a multiple of 8 up to {}", s.head_dim, kMaxHeadDim);
  for (const std::size_t stride : {s.q_stride, s.k_stride, s.v_stride})
    if (stride % 8 != 0) return fmt::format("rows of {} elements do not start at multiples of 16 bytes", stride);
  if (workspace_bound(s) > kMaxWorkspace)
    return fmt::format("cuDNN's deterministic backward would take {:.1f} GiB of workspace",
                       static_cast<double>(workspace_bound(s)) / (1 << 30));
  return {};
}

std::size_t cudnn_attention_workspace(const AttentionShape& shape, DType dtype) {
  return needs_own_kernels(shape, dtype, {}).empty() ? workspace_bound(shape) : 0;
}

}  // namespace strata::device::cuda
