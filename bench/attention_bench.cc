// Times attention, forward and backward. FLOP/s are per core and count only unmasked elements. "peak" is their share of
// a core's peak in this dtype: by FMA, in bf16 also by VDPBF16PS if the processor has it and is faster with it.
//   attention_bench [threads] [google-benchmark options]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/abort.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/lanes/peak.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/attention/attention.h"

namespace strata::device {
namespace {

struct Named {
  const char* name;
  std::size_t batch, seq, heads, kv_heads, head_dim;
  float dropout;
  std::size_t document = 0;  // rows per document; 0: the complete sequence
  bool causal = true;
  std::size_t window = 0;
};
constexpr Named kShapes[] = {
    {"gpt2_4x256", 4, 256, 12, 12, 64, 0},
    {"gpt2_1x1024", 1, 1024, 12, 12, 64, 0},
    {"gpt2_1x1024_dropout", 1, 1024, 12, 12, 64, 0.1f},
    {"long_1x4096", 1, 4096, 2, 2, 64, 0},
    {"groups_1x1024", 1, 1024, 8, 2, 128, 0},
    {"head80_1x1024", 1, 1024, 8, 8, 80, 0},
    {"documents_1x1024", 1, 1024, 12, 12, 64, 0, 210},
    {"bidirectional_1x1024", 1, 1024, 12, 12, 64, 0, 210, false},
    {"smollm2_1x2048", 1, 2048, 9, 3, 64, 0},
    {"gpt2_1x4096", 1, 4096, 12, 12, 64, 0},
    {"window_1x4096", 1, 4096, 12, 12, 64, 0, 0, true, 512},
    {"one_document_1x65536", 1, 65536, 1, 1, 64, 0},
};

// The last document fills the rest of the sequence.
std::vector<RowRange> documents_of(const Named& n) {
  const std::size_t rows = n.document == 0 ? n.seq : n.document;
  std::vector<RowRange> documents;
  for (std::size_t row = 0; row < n.batch * n.seq; ++row) {
    const std::size_t first = row % n.seq / rows * rows;
    documents.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(std::min(first + rows, n.seq))});
  }
  return documents;
}

struct Buffer {
  Arena arena;
  DType dtype;
  Buffer(std::size_t size, DType type) : arena(size * size_of(type)), dtype(type) {
    std::minstd_rand engine(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    visit(type, [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t i = 0; i < size; ++i) reinterpret_cast<T*>(arena.data())[i] = from_float<T>(uniform(engine));
    });
  }
  View view() const { return {arena.data(), arena.size() / size_of(dtype), dtype}; }
  View from(std::size_t offset) const { return view().sub(offset, view().size - offset); }
};

// A core's FLOP/s: the maximum of several measurements, because interruptions only slow it down.
double rate(double (*kernel)(std::size_t rounds)) {
  double best = 0;
  for (int time = 0; time < 20; ++time) {
    const auto begin = std::chrono::steady_clock::now();
    const double flops = kernel(100000);
    best = std::max(best, flops / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}
double peak(DType dtype) {
  static const double fp32 =
      rate(cpu::isa() == cpu::Isa::avx512 ? cpu::avx512::peak_kernels_table.fp32 : cpu::avx2::peak_kernels_table.fp32);
  static const double bf16 = cpu::has_avx512_bf16() ? rate(cpu::avx512_bf16::peak_kernels_table.bf16) : 0;
  return dtype == DType::bf16 ? std::max(fp32, bf16) : fp32;
}

void attend(benchmark::State& state, const Named& n, DType dtype, int threads, bool backward) {
  const std::size_t row = (n.heads + 2 * n.kv_heads) * n.head_dim, rows = n.batch * n.seq;
  const std::size_t k = n.heads * n.head_dim, v = k + n.kv_heads * n.head_dim;
  const float scale = 1 / std::sqrt(static_cast<float>(n.head_dim));
  const AttentionShape shape{n.batch, n.seq, n.heads, n.kv_heads, n.head_dim, row, row, row, scale, n.window, n.causal};
  const Buffer qkv(rows * row, dtype), d_qkv(rows * row, dtype), o(rows * k, dtype), d_o(rows * k, dtype);
  const Buffer lse(rows * n.heads, DType::fp32);
  const Buffer workspace(attention_workspace({}, shape, dtype, false, threads) / 4 + 1, DType::fp32);
  const std::vector<RowRange> documents = documents_of(n);
  const StepScalars scalars{};
  const Dropout dropout{n.dropout, 1, 0, &scalars};
  AbortToken abort;
  Lane lane("bench", threads, 0, abort);
  const auto forward = [&] {
    attention_forward(lane, shape, documents.data(), qkv.view(), qkv.from(k), qkv.from(v), o.view(), lse.view(),
                      dropout, workspace.view());
    lane.synchronize();
  };
  forward();
  for (auto _ : state) {
    if (!backward) {
      forward();
      continue;
    }
    attention_backward(lane, shape, documents.data(), qkv.view(), qkv.from(k), qkv.from(v), o.view(), lse.view(),
                       d_o.view(), d_qkv.view(), d_qkv.from(k), d_qkv.from(v), dropout, workspace.view());
    lane.synchronize();
  }
  double pairs = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t seen = (n.causal ? r % n.seq + 1 : documents[r].end) - documents[r].first;
    pairs += static_cast<double>(n.window == 0 ? seen : std::min(seen, n.window));
  }
  pairs *= static_cast<double>(n.heads);
  const double flops = (backward ? 10.0 : 4.0) * pairs * static_cast<double>(n.head_dim);
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["peak"] = benchmark::Counter(flops / peak(dtype), benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace strata::device

int main(int argc, char** argv) {
  using namespace strata::device;
  benchmark::Initialize(&argc, argv);
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (const Named& n : kShapes)
      for (const bool backward : {false, true})
        // CPU time of all threads: on a shared machine the wall clock also measures other processes.
        benchmark::RegisterBenchmark(
            (std::string(name_of(dtype)) + "/" + n.name + (backward ? "/backward" : "/forward")).c_str(),
            [&n, dtype, threads, backward](benchmark::State& s) { attend(s, n, dtype, threads, backward); })
            ->MeasureProcessCPUTime()
            ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
}
