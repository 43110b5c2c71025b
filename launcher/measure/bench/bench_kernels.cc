#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <vector>

#include "base/json/json_writer.h"
#include "device/ops/activation.h"
#include "device/ops/elementwise.h"
#include "device/ops/losses/losses.h"
#include "device/ops/norm.h"
#include "device/ops/step/gradient_sum.h"
#include "device/ops/step/optimizer.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/bench/bench_lane.h"
#include "launcher/median.h"
#include "launcher/rank/cores.h"
#include "runtime/job/capacity.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"
#include "runtime/recipe/value.h"

namespace strata::launcher {
namespace {

using device::DType, device::View;

// The widths of gpt2-124m, qwen-1.5b and qwen-7b, and the vocabulary of the last two.
constexpr std::size_t kNormWidths[] = {768, 1536, 3584};
constexpr std::size_t kMlpWidth = 18944, kVocabulary = 151936;
constexpr int kRounds = 5;
// Memory in addition to operands: workspaces, values kept per row, labels, rounding up to pages.
constexpr std::size_t kExtraBytes = std::size_t{256} << 20;

struct Row {
  std::string name;
  double bytes, seconds;
  double rate() const { return bytes / seconds / 1e9; }
};

class Kernels {
 public:
  Kernels(int threads, device::Device device, std::size_t bytes)
      : bytes_(bytes), on_host_(device.kind == device::Kind::cpu), timed_(threads, bytes + kExtraBytes, device) {
    // Zeros take less power, and may therefore be faster than the numbers in a step.
    std::minstd_rand engine(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (device::bf16& x : halves_) x = device::from_float<device::bf16>(uniform(engine));
    for (float& x : floats_) x = uniform(engine);
  }

  const std::vector<Row>& rows() const { return rows_; }
  // Called a second time, it updates the same row, and the faster of the two calls counts.
  void copies() {
    const std::size_t n = elements(8);
    const View from = random(n, DType::fp32), to = timed_.take(n, DType::fp32);
    const Row row = time("copy", 8.0 * static_cast<double>(n), [&] { cast(timed_.lane(), from, to); });
    if (rows_.empty())
      rows_.push_back(row);
    else
      rows_[0].seconds = std::min(rows_[0].seconds, row.seconds);
  }
  void norms(std::size_t width, bool layernorm) {
    const device::NormShape forward = norm_shape(width, 4), backward = norm_shape(width, 8);
    const std::string kind = layernorm ? "layernorm" : "rmsnorm";
    Norm f(*this, forward);
    const auto count = [width](const device::NormShape& s) { return static_cast<double>(s.rows * width); };
    add(fmt::format("{}_forward {}", kind, width), 4 * count(forward), [&] {
      if (layernorm)
        layernorm_forward(timed_.lane(), forward, f.x, f.gain, f.bias, f.dx, f.mean, f.rstd);
      else
        rmsnorm_forward(timed_.lane(), forward, f.x, f.gain, f.dx, f.rstd);
    });
    Norm b(*this, backward);
    const View dy = random(b.x.size, DType::bf16), residual = random(b.x.size, DType::bf16);
    const View dgain = timed_.take(width, DType::fp32), dbias = timed_.take(width, DType::fp32);
    const View workspace = timed_.take(norm_backward_workspace(backward) / 4 + 1, DType::fp32);
    add(fmt::format("{}_backward {}", kind, width), 8 * count(backward), [&] {
      if (layernorm)
        layernorm_backward(timed_.lane(), backward, dy, b.x, b.gain, b.mean, b.rstd, residual, b.dx, dgain, dbias,
                           workspace);
      else
        rmsnorm_backward(timed_.lane(), backward, dy, b.x, b.gain, b.rstd, residual, b.dx, dgain, workspace);
    });
  }
  void activations() {
    const std::size_t n = elements(4), m = elements(6);
    const View x = random(n, DType::bf16), y = timed_.take(n, DType::bf16);
    add("gelu_forward", 4.0 * static_cast<double>(n),
        [&] { activation_forward(timed_.lane(), device::Activation::gelu_tanh, x, y); });
    const View dy = random(m, DType::bf16), input = random(m, DType::bf16), dx = timed_.take(m, DType::bf16);
    add("gelu_backward", 6.0 * static_cast<double>(m),
        [&] { activation_backward(timed_.lane(), device::Activation::gelu_tanh, dy, input, dx); });
    const std::size_t rows = bytes_ / 6 / kMlpWidth, back = bytes_ / 10 / kMlpWidth;
    const View gate_up = random(2 * rows * kMlpWidth, DType::bf16), out = timed_.take(rows * kMlpWidth, DType::bf16);
    add(fmt::format("swiglu_forward {}", kMlpWidth), 6.0 * static_cast<double>(out.size),
        [&] { gated_forward(timed_.lane(), device::Gate::silu, rows, kMlpWidth, gate_up, out); });
    const View d = random(back * kMlpWidth, DType::bf16), input2 = random(2 * d.size, DType::bf16);
    const View d_input = timed_.take(2 * d.size, DType::bf16);
    add(fmt::format("swiglu_backward {}", kMlpWidth), 10.0 * static_cast<double>(d.size),
        [&] { gated_backward(timed_.lane(), device::Gate::silu, back, kMlpWidth, d, input2, d_input); });
  }
  void cross_entropy() {
    const std::size_t rows = bytes_ / 4 / kVocabulary;
    const View logits = random(rows * kVocabulary, DType::fp32);
    const View statistics = timed_.take(rows * sizeof(device::RowStatistics) / 4, DType::fp32);
    const View labels = timed_.take(rows, DType::fp32), scalars = step_scalars();
    std::vector<std::int32_t> words(rows);
    for (std::size_t r = 0; r < rows; ++r) words[r] = static_cast<std::int32_t>(r * 7919 % kVocabulary);
    timed_.fill(labels, std::as_bytes(std::span(words)));
    const device::LogitTile tile{rows, 0, kVocabulary, kVocabulary, logits, true};
    const auto* const of_rows = reinterpret_cast<const std::int32_t*>(labels.data);
    auto* const kept = reinterpret_cast<device::RowStatistics*>(statistics.data);
    const auto n = static_cast<double>(logits.size);
    add(fmt::format("softmax_statistics {}", kVocabulary), 4 * n,
        [&] { softmax_statistics(timed_.lane(), tile, of_rows, kept); });
    // Overwrites the logits. From the second run on, gradients are read as logits, which costs the same.
    add(fmt::format("cross_entropy_gradient {}", kVocabulary), 6 * n, [&] {
      cross_entropy_gradient(timed_.lane(), tile, of_rows, kept,
                             reinterpret_cast<const device::StepScalars*>(scalars.data), DType::bf16);
    });
  }
  void adamw(const char* name, device::StorageFormat format) {
    const double moment =
        static_cast<double>(stored_bytes(format, device::kMomentBlock)) / static_cast<double>(device::kMomentBlock);
    const double of_element = 2 + 8 + 2 + 4 * moment;  // gradient, master in and out, parameter, moments in and out
    const std::size_t n = elements(of_element);
    const View gradient = random(n, DType::bf16), master = random(n, DType::fp32);
    const View parameter = timed_.take(n, DType::bf16), scalars = step_scalars();
    const View first = timed_.take(stored_bytes(format, n) / 4, DType::fp32);
    const View second = timed_.take(stored_bytes(format, n) / 4, DType::fp32);
    add(name, of_element * static_cast<double>(n), [&] {
      update(timed_.lane(), {}, reinterpret_cast<const device::StepScalars*>(scalars.data),
             {.first = gradient,
              .master = master,
              .parameter = parameter,
              .format = format,
              .moment1 = first.data,
              .moment2 = second.data});
    });
  }
  void sums() {
    const std::size_t n = elements(10), m = elements(4), c = elements(6);
    const View piece = random(n, DType::bf16), sum = random(n, DType::fp32);
    const std::array<const std::byte*, 1> pieces = {piece.data};
    add("gradient_sum", 10.0 * static_cast<double>(n),
        [&] { gradient_sum(timed_.lane(), pieces, DType::bf16, sum, false); });
    const View gradients = random(m, DType::fp32), total = timed_.take(sizeof(device::ExactSum) / 4, DType::fp32);
    add("gradient_square_sum", 4.0 * static_cast<double>(m),
        [&] { gradient_square_sum(timed_.lane(), gradients, {}, reinterpret_cast<device::ExactSum*>(total.data)); });
    const View wide = random(c, DType::fp32), narrow = timed_.take(c, DType::bf16);
    add("cast fp32 bf16", 6.0 * static_cast<double>(c), [&] { cast(timed_.lane(), wide, narrow); });
    const std::size_t rows = bytes_ / 2 / kNormWidths[1];
    const View x = random(rows * kNormWidths[1], DType::bf16), out = timed_.take(kNormWidths[1], DType::fp32);
    const View workspace = timed_.take(device::column_sum_workspace(rows, kNormWidths[1]) / 4 + 1, DType::fp32);
    add(fmt::format("column_sum {}", kNormWidths[1]), 2.0 * static_cast<double>(x.size),
        [&] { column_sum(timed_.lane(), rows, kNormWidths[1], kNormWidths[1], x, out, workspace); });
  }

 private:
  struct Norm {
    Norm(Kernels& k, const device::NormShape& s)
        : x(k.random(s.rows * s.width, DType::bf16)),
          dx(k.timed_.take(x.size, DType::bf16)),
          gain(k.random(s.width, DType::bf16)),
          bias(k.random(s.width, DType::bf16)),
          mean(k.random(s.rows, DType::fp32)),
          rstd(k.random(s.rows, DType::fp32)) {}
    View x, dx, gain, bias, mean, rstd;
  };

  // The number of elements that moves the requested bytes, in whole blocks of every format.
  std::size_t elements(double bytes_of_each) const {
    return static_cast<std::size_t>(static_cast<double>(bytes_) / bytes_of_each) / 4096 * 4096;
  }
  device::NormShape norm_shape(std::size_t width, std::size_t bytes_of_each) const {
    return {.rows = bytes_ / bytes_of_each / width, .width = width, .x_stride = width, .y_stride = width, .eps = 1e-5f};
  }
  View random(std::size_t size, DType dtype) {
    const View view = timed_.take(size, dtype);
    timed_.fill(view, dtype == DType::fp32 ? std::as_bytes(std::span(floats_)) : std::as_bytes(std::span(halves_)));
    return view;
  }
  View step_scalars() {
    device::StepScalars scalars{};
    scalars.loss_gradient = 1e-3f;
    scalars.learning_rate = 1e-4f;
    scalars.gradient_factor = scalars.bias_correction1 = scalars.bias_correction2 = 1;
    const View view = timed_.take((sizeof scalars + 3) / 4, DType::fp32);
    timed_.fill(view, std::as_bytes(std::span(&scalars, 1)));
    return view;
  }
  void add(const std::string& name, double bytes, const std::function<void()>& run) {
    rows_.push_back(time(name, bytes, run));
  }
  // Times the operation with the lane's own time stamps. Releases all memory that was taken.
  Row time(const std::string& name, double bytes, const std::function<void()>& run) {
    const int runs = on_host_ ? 1 : 10;
    std::vector<double> seconds;
    for (int round = -1; round < kRounds; ++round) {
      std::int64_t begin = 0, end = 0;
      timed_.lane().stamp(&begin);
      for (int i = 0; i < runs; ++i) run();
      timed_.lane().stamp(&end);
      timed_.lane().synchronize();
      if (round >= 0) seconds.push_back(static_cast<double>(end - begin) / 1e9 / runs);
    }
    timed_.clear();
    return {name, bytes, median_of(std::move(seconds))};
  }

  const std::size_t bytes_;
  const bool on_host_;
  std::vector<device::bf16> halves_ = std::vector<device::bf16>(std::size_t{1} << 22);
  std::vector<float> floats_ = std::vector<float>(std::size_t{1} << 21);
  BenchLane timed_;
  std::vector<Row> rows_;
};

}  // namespace

int bench_kernels(const BenchOptions& options) {
  const runtime::Recipe recipe = runtime::load_recipe(options.recipe, sets_with_model(options));
  const runtime::RankDevice rank_device = runtime::choose_rank_device(recipe.device.kind, 0);
  const auto bytes = runtime::parse_size(options.size);
  if (!bytes || *bytes < (std::size_t{16} << 20))
    fail(Exit::usage, "--size {}: it takes a size of 16MiB or more, such as 2GiB", options.size);
  const int threads = options.threads.value_or(bind_cores(0, 1).cores);

  Kernels kernels(threads, rank_device.device, *bytes);
  kernels.copies();
  for (const std::size_t width : kNormWidths) kernels.norms(width, width == kNormWidths[0]);
  kernels.activations();
  kernels.cross_entropy();
  kernels.adamw("adamw fp32", device::StorageFormat::fp32);
  kernels.adamw("adamw bf16", device::StorageFormat::bf16);
  kernels.adamw("adamw 8bit", device::StorageFormat::block8);
  kernels.sums();
  kernels.copies();

  const std::string name = runtime::describe(rank_device);
  const double copy = kernels.rows()[0].rate();
  fmt::print("{}, {} bytes a kernel, read and written; median of {}\n", name, *bytes, kRounds);
  JsonArray rows_json;
  for (const Row& row : kernels.rows()) {
    fmt::print("  {:<30}{:>10.3f} ms {:>9.1f} GB/s {:>6.2f} of a copy's\n", row.name, row.seconds * 1e3, row.rate(),
               row.rate() / copy);
    rows_json.add(JsonObject()
                      .add("kernel", row.name)
                      .add("bytes", Decimals{row.bytes, 0})
                      .add("ms", Decimals{row.seconds * 1e3, 4})
                      .add("gb_per_s", Decimals{row.rate(), 2})
                      .add("of_copy", Decimals{row.rate() / copy, 4}));
  }
  write_json(options,
             JsonObject().add("device", name).add("copy_gb_per_s", Decimals{copy, 2}).add("kernels", rows_json));
  return 0;
}

}  // namespace strata::launcher
