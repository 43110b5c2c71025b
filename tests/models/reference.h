#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "device/numeric/philox.h"
#include "tests/models/unit_runner.h"

// The operations of transformer blocks, written again from the papers: dense, row by row, in double precision.
namespace strata::models::testing {

inline double norm_of(const Doubles& x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares);
}
inline double largest_of(const Doubles& x) {
  double largest = 0;
  for (const double v : x) largest = std::max(largest, std::abs(v));
  return largest;
}
inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
// |a - b| / |b|; NaN stays NaN.
inline double relative_error(const Doubles& a, const Doubles& b) {
  Doubles difference(b.size(), std::numeric_limits<double>::quiet_NaN());
  if (a.size() == b.size())
    for (std::size_t i = 0; i < b.size(); ++i) difference[i] = a[i] - b[i];
  return norm_of(difference) / norm_of(b);
}

inline Doubles sum(Doubles a, const Doubles& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
// x[rows, in] W + b. W is [in, out] if input_major, otherwise [out, in]. An empty b means no bias.
inline Doubles linear(const Doubles& x, std::size_t in, const Doubles& w, const Doubles& b, bool input_major) {
  const std::size_t rows = x.size() / in, out = w.size() / in;
  Doubles y(rows * out);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < out; ++o) {
      double value = b.empty() ? 0 : b[o];
      for (std::size_t i = 0; i < in; ++i) value += x[r * in + i] * w[input_major ? i * out + o : o * in + i];
      y[r * out + o] = value;
    }
  return y;
}
inline Doubles layernorm(Doubles x, const Doubles& gain, const Doubles& bias, double eps) {
  const std::size_t n = gain.size();
  for (std::size_t r = 0; r < x.size(); r += n) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < n; ++i) mean += x[r + i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) variance += (x[r + i] - mean) * (x[r + i] - mean) / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) x[r + i] = (x[r + i] - mean) / std::sqrt(variance + eps) * gain[i] + bias[i];
  }
  return x;
}
// Normalises every gain.size() neighbouring elements: complete rows, or the heads of packed rows.
inline Doubles rmsnorm(Doubles x, const Doubles& gain, double eps) {
  const std::size_t n = gain.size();
  for (std::size_t r = 0; r < x.size(); r += n) {
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) squares += x[r + i] * x[r + i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) x[r + i] *= gain[i] / std::sqrt(squares + eps);
  }
  return x;
}
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double gelu_erf(double x) {
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}
inline double silu(double x) {
  return x / (1 + std::exp(-x));
}
// Rotates pairs (i, i + head_dim / 2) of every head by position * frequency[i].
inline Doubles rotate(Doubles x, const std::vector<std::uint32_t>& positions, const Doubles& frequencies) {
  const std::size_t half = frequencies.size(), row = x.size() / positions.size();
  for (std::size_t at = 0; at < x.size(); at += 2 * half)
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = positions[at / row] * frequencies[i], a = x[at + i], b = x[at + half + i];
      x[at + i] = a * std::cos(angle) - b * std::sin(angle);
      x[at + half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
  return x;
}

// Which elements a use of dropout keeps, from the random numbers that device/ops/elementwise.h promises.
struct Mask {
  float probability = 0;
  device::RandomStream stream{};

  Mask() = default;
  Mask(const UnitRunner& runner, float p, std::uint32_t site)
      : probability(p), stream{runner.scalars.seed, runner.scalars.first_micro_batch + runner.micro_batch, site} {}
  double operator()(std::size_t index) const {
    if (probability == 0) return 1;
    return random_word(stream, index) < device::drop_threshold(probability) ? 0 : 1 / (1 - double{probability});
  }
};
inline Doubles dropped(Doubles x, const Mask& mask) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= mask(i);
  return x;
}

struct Heads {
  std::size_t batch, seq, heads, kv_heads, head_dim;
  std::size_t window = 0;  // 0: all keys before the query and its own
  bool causal = true;      // else all keys of the sequence
};
// q [rows, heads, head_dim], k and v [rows, kv_heads, head_dim]; the mask counts [batch, heads, query, key].
inline Doubles attention(const Heads& s, const Doubles& q, const Doubles& k, const Doubles& v, const Mask& mask) {
  const std::size_t d = s.head_dim;
  Doubles o(q.size());
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < s.heads; ++h)
      for (std::size_t i = 0; i < s.seq; ++i) {
        const std::size_t kv = h / (s.heads / s.kv_heads), to = ((b * s.seq + i) * s.heads + h) * d;
        const std::size_t first = s.window != 0 && i >= s.window ? i + 1 - s.window : 0;
        const std::size_t end = s.causal ? i + 1 : s.seq;
        Doubles p(end);
        double total = 0;
        for (std::size_t j = first; j < end; ++j) {
          double score = 0;
          for (std::size_t e = 0; e < d; ++e) score += q[to + e] * k[((b * s.seq + j) * s.kv_heads + kv) * d + e];
          total += p[j] = std::exp(score / std::sqrt(static_cast<double>(d)));
        }
        for (std::size_t j = first; j < end; ++j) {
          const double weight = p[j] / total * mask(((b * s.heads + h) * s.seq + i) * s.seq + j);
          for (std::size_t e = 0; e < d; ++e) o[to + e] += weight * v[((b * s.seq + j) * s.kv_heads + kv) * d + e];
        }
      }
  return o;
}

}  // namespace strata::models::testing
