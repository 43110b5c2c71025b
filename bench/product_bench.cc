// GFLOP/s of the products of a GPT-2 124M step, 1,024 tokens and head chunks of 256, per dtype.
//   product_bench [threads] [google-benchmark options]
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/abort.h"
#include "device/lane.h"
#include "device/memory.h"
#include "device/ops/products/product.h"

namespace strata::device {
namespace {

constexpr std::int64_t kTokens = 1024, kWidth = 768, kInner = 3072, kWords = 50304, kChunk = 256;

struct Named {
  const char* name;
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, bias, accumulate, wide;  // wide: fp32 output
};
constexpr Named kProducts[] = {
    {"qkv", kTokens, 3 * kWidth, kWidth, false, false, true, false, false},
    {"projection", kTokens, kWidth, kWidth, false, false, true, false, false},
    {"up", kTokens, kInner, kWidth, false, false, true, false, false},
    {"down", kTokens, kWidth, kInner, false, false, true, false, false},
    {"up_out_in", kTokens, kInner, kWidth, false, true, false, false, false},
    {"up_input_gradient", kTokens, kWidth, kInner, false, true, false, false, false},
    {"up_weight_gradient", kWidth, kInner, kTokens, true, false, false, false, false},
    {"up_weight_gradient_sum", kWidth, kInner, kTokens, true, false, false, true, true},
    {"down_weight_gradient", kInner, kWidth, kTokens, true, false, false, false, false},
    {"head", kChunk, kWords, kWidth, false, true, false, false, true},
    {"head_input_gradient", kChunk, kWidth, kWords, false, false, false, false, false},
    {"head_weight_gradient_sum", kWords, kWidth, kChunk, true, false, false, true, true},
};

// Allocated like the runtime's memory (large pages); every element is 0.01.
struct Buffer {
  Arena arena;
  DType dtype;
  Buffer(std::int64_t size, DType type) : arena(static_cast<std::size_t>(size) * size_of(type)), dtype(type) {
    visit(type, [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t i = 0; i < size; ++i) reinterpret_cast<T*>(arena.data())[i] = from_float<T>(0.01f);
    });
  }
  View view() const { return {arena.data(), arena.size() / size_of(dtype), dtype}; }
};

void multiply(benchmark::State& state, const Named& p, DType in, int threads) {
  const DType out = p.wide ? DType::fp32 : in;
  const Product product({}, {p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.transpose_a ? p.m : p.k,
                             p.transpose_b ? p.k : p.n, p.n, in, out, p.bias, p.accumulate});
  const Buffer a(p.m * p.k, in), b(p.k * p.n, in), bias(p.n, in), c(p.m * p.n, out);
  const Buffer workspace(static_cast<std::int64_t>(product.workspace_bytes(threads) / 4 + 1), DType::fp32);
  AbortToken abort;
  Lane lane("bench", threads, 0, abort);
  for (auto _ : state) {
    product.run(lane, a.view(), b.view(), p.bias ? ConstView(bias.view()) : ConstView{}, c.view(), workspace.view());
    lane.synchronize();
  }
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace strata::device

int main(int argc, char** argv) {
  using namespace strata::device;
  benchmark::Initialize(&argc, argv);
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  for (const DType in : {DType::fp32, DType::bf16, DType::fp16})
    for (const Named& p : kProducts)
      // CPU time of all threads: on a shared machine the wall clock also measures other processes.
      benchmark::RegisterBenchmark((std::string(name_of(in)) + "/" + p.name).c_str(),
                                   [&p, in, threads](benchmark::State& s) { multiply(s, p, in, threads); })
          ->MeasureProcessCPUTime()
          ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
}
