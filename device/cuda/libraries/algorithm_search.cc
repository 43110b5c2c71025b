#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "device/cuda/backend.h"
#include "device/cuda/check.h"
#include "device/cuda/context.h"
#include "device/cuda/lane_impl.h"
#include "device/cuda/libraries/cudnn_attention.h"
#include "device/cuda/libraries/library.h"
#include "device/cuda/libraries/matmul.h"

namespace strata::device::cuda {
namespace {

// The number of the library's proposals that are timed, and the time spent on each.
constexpr int kCandidates = 24;
constexpr int kRounds = 3;
constexpr float kRoundMs = 2;
constexpr int kMaxRuns = 20;
constexpr std::size_t kCompared = std::size_t{4} << 20;

std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t row) {
  return static_cast<std::size_t>((rows - 1) * row + columns);
}

// `size` numbers from [-1, 1]: multiplying zeros takes less power, so it would be faster than in a step.
View random(Device device, DeviceMemory& memory, std::size_t size, DType dtype) {
  const View out{nullptr, size, dtype};
  void* data = nullptr;
  STRATA_CUDA(cudaMalloc(&data, std::max<std::size_t>(out.bytes(), 1)));
  memory.reset(static_cast<std::byte*>(data));
  std::minstd_rand generator(1);
  std::vector<std::byte> some(std::min<std::size_t>(out.bytes(), std::size_t{1} << 20));
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < some.size() / sizeof(T); ++i) {
      const T number = from_float<T>(static_cast<float>(generator()) / 0x1p30f - 1);
      std::memcpy(some.data() + i * sizeof(T), &number, sizeof(T));
    }
  });
  for (std::size_t at = 0; at < out.bytes(); at += some.size())
    copy(device, memory.get() + at, some.data(), std::min(some.size(), out.bytes() - at));
  return {memory.get(), size, dtype};
}

// One product's operands and a lane to time it in.
class Bench {
 public:
  Bench(Lane& lane, const ProductShape& s)
      : lane_(lane),
        impl_(static_cast<StreamLane&>(lane.impl())),
        product_(make_product(lane.device(), s)),
        begin_(make_timing_event()),
        end_(make_timing_event()) {
    const std::size_t out = extent(s.m, s.n, s.ldc);
    x_.a = random(lane.device(), a_, s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda), s.in);
    x_.b = random(lane.device(), b_, s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb), s.in);
    x_.c = random(lane.device(), c_, out, s.out);
    if (s.bias) x_.bias = random(lane.device(), bias_, static_cast<std::size_t>(s.n), s.out);
    const std::size_t workspace = std::max(kMatmulWorkspace, product_->epilogue_workspace());
    x_.workspace = random(lane.device(), workspace_, workspace / 2, DType::bf16);
    if (s.epilogue == Epilogue::none) return;
    // This view is as large as the largest epilogue operand.
    const View second = random(lane.device(), second_, std::max(out, static_cast<std::size_t>(s.m)), s.out);
    if (is_gelu_gradient(s.epilogue))
      x_.epilogue_in = second;
    else
      x_.epilogue_out = second;
  }

  // The fastest of the library's proposals that gives the same bits twice, and its time per run. "" and infinity if no
  // proposal does.
  struct Timed {
    std::string algorithm;
    float ms = std::numeric_limits<float>::infinity();
  };
  Timed timed(const AlgorithmKey& key, const std::string& algorithm) {
    Matmul matmul(impl_.cublaslt_handle(), key);
    if (!matmul.choose(algorithm)) return {};
    return {algorithm, time([&] { matmul.run(impl_.stream(), x_, x_.bias.data, x_.workspace.data); })};
  }
  Timed best(const AlgorithmKey& key) {
    std::vector<Timed> timed;
    Matmul matmul(impl_.cublaslt_handle(), key);
    const auto run = [&] { matmul.run(impl_.stream(), x_, x_.bias.data, x_.workspace.data); };
    for (const std::string& algorithm : matmul.candidates(kCandidates))
      if (matmul.choose(algorithm) && matmul.try_run(impl_.stream(), x_, x_.bias.data, x_.workspace.data))
        timed.push_back({algorithm, time(run)});
    std::stable_sort(timed.begin(), timed.end(), [](const Timed& a, const Timed& b) { return a.ms < b.ms; });
    const auto repeats = [&](const Timed& t) {
      return matmul.choose(t.algorithm) && bits_after(run) == bits_after(run);
    };
    const auto found = std::find_if(timed.begin(), timed.end(), repeats);
    if (found != timed.end()) return *found;
    // If nothing was found, an epilogue becomes a separate operation. A plain product has no alternative.
    if (!timed.empty() && key.shape.epilogue == Epilogue::none)
      fail(Exit::failed, "no algorithm of cuBLASLt gives the product {} the same bits twice", key.text());
    return {};
  }

  // The time of the epilogue as a separate operation.
  float epilogue_ms() {
    return time([&] { product_->run_epilogue(lane_, x_); });
  }

 private:
  // Reads the beginning and the end of the product's output: as much as can be checked quickly.
  template <typename Run>
  std::string bits_after(Run run) {
    STRATA_CUDA(cudaMemsetAsync(x_.c.data, 0, x_.c.bytes(), impl_.stream()));  // the product may accumulate
    run();
    lane_.synchronize();
    std::string bits;
    for (const View& out : {x_.c, x_.epilogue_out}) {
      const std::size_t some = std::min(out.bytes(), kCompared), at = bits.size();
      bits.resize(at + 2 * some);
      auto* const to = reinterpret_cast<std::byte*>(bits.data()) + at;
      copy(lane_.device(), to, out.data, some);
      copy(lane_.device(), to + some, out.data + (out.bytes() - some), some);
    }
    return bits;
  }
  template <typename Run>
  float measure(Run run, int runs) {
    STRATA_CUDA(cudaEventRecord(begin_.get(), impl_.stream()));
    for (int i = 0; i < runs; ++i) run();
    STRATA_CUDA(cudaEventRecord(end_.get(), impl_.stream()));
    STRATA_CUDA(cudaEventSynchronize(end_.get()));
    float ms = 0;
    STRATA_CUDA(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    return ms / static_cast<float>(runs);
  }
  template <typename Run>
  float time(Run run) {
    run();
    const float once = measure(run, 1);
    const int runs = std::clamp(static_cast<int>(kRoundMs / std::max(once, 1e-3f)), 1, kMaxRuns);
    float best = std::numeric_limits<float>::infinity();
    for (int round = 0; round < kRounds; ++round) best = std::min(best, measure(run, runs));
    return best;
  }

  Lane& lane_;
  StreamLane& impl_;
  std::unique_ptr<Product::Impl> product_;
  StreamEvent begin_, end_;
  DeviceMemory a_, b_, c_, bias_, second_, workspace_;
  Product::Impl::Operands x_;
};

// The alignment that the row lengths of a shape allow if its operands start aligned.
int alignment_of(const ProductShape& s) {
  const auto rows = static_cast<std::uintptr_t>(s.lda | s.ldb) * size_of(s.in) |
                    static_cast<std::uintptr_t>(s.ldc) * size_of(s.out) | 16u;
  return static_cast<int>(rows & (~rows + 1));
}

}  // namespace

std::string algorithm_machine(Device device) {
  prepare_to_start();
  cudaDeviceProp properties{};
  STRATA_CUDA(cudaGetDeviceProperties(&properties, device.ordinal));
  // Part of a GPU (MIG) has fewer multiprocessors than the whole GPU of the same name, and other algorithms.
  const std::string attention = cudnn_text();  // its version determines the shapes for which it computes attention
  return fmt::format("{} ({} SMs), cuBLASLt {}{}{}", properties.name, properties.multiProcessorCount,
                     library_version_text(cublaslt().cublasLtGetVersion()), attention.empty() ? "" : ", ", attention);
}

void search_algorithms(Device device, std::span<const ProductShape> shapes, AlgorithmTable& table) {
  AbortToken abort;
  Lane lane("algorithms", 1, 0, abort, device);
  for (const ProductShape& s : shapes) {
    const AlgorithmKey fused{s, alignment_of(s)};
    AlgorithmKey plain = fused;
    plain.shape.epilogue = Epilogue::none;
    const bool fuses = s.epilogue != Epilogue::none && Matmul::fuses(fused);
    if (table.find(plain) && (!fuses || table.find(fused))) continue;
    Bench bench(lane, s);
    const std::string* const known = table.find(plain);
    const Bench::Timed alone = known ? bench.timed(plain, *known) : bench.best(plain);
    if (!known && !alone.algorithm.empty()) table.set(plain, alone.algorithm);
    if (!fuses) continue;
    const Bench::Timed together = bench.best(fused);
    const bool apart = together.ms >= alone.ms + bench.epilogue_ms();
    table.set(fused, apart ? std::string(AlgorithmTable::kApart) : together.algorithm);
  }
  lane.synchronize();
}

}  // namespace strata::device::cuda
