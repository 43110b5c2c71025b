#include "device/numeric/dynamic_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace strata::device {
namespace {

// The map as bitsandbytes publishes it (functional.create_dynamic_map): decades of equal steps, a value in the middle
// of each, zero and one.
std::vector<double> published_map(bool has_sign) {
  std::vector<double> values = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int steps = has_sign ? 1 << i : 2 << i;
    for (int k = 0; k < steps; ++k) {
      const double value = std::pow(10.0, i - 6) * (0.1 + 0.9 * (k + 0.5) / steps);
      values.push_back(value);
      if (has_sign) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

// The value of a code of bitsandbytes, which counts values in their order.
template <bool kSigned>
std::uint8_t byte_of(int code) {
  return static_cast<std::uint8_t>(kSigned ? 127 - code : code);
}

template <bool kSigned>
std::vector<float> own_map() {
  std::vector<float> values;
  for (int code = 0; code < 256; ++code) values.push_back(decode<kSigned>(byte_of<kSigned>(code)));
  return values;
}

template <bool kSigned>
void expect_published() {
  const auto published = published_map(kSigned);
  const auto own = own_map<kSigned>();
  ASSERT_EQ(published.size(), 256u);
  // Two fp32 roundings of terms that are up to nine times the value.
  for (std::size_t code = 0; code < 256; ++code)
    EXPECT_NEAR(own[code], published[code], std::abs(published[code]) * 16 * 0x1p-24) << code;
  EXPECT_EQ(own[255], 1.0f);
  EXPECT_EQ(own[kSigned ? 127 : 0], 0.0f);
}
TEST(DynamicMap, HasThePublishedValues) {
  expect_published<true>();
  expect_published<false>();
}

// Values that bitsandbytes 0.50.2 returned, in fp32.
TEST(DynamicMap, HasBitsandbytesValues) {
  const struct {
    int code;
    float signed_value, unsigned_value;
  } golden[] = {
      {0, -0.992968738f, 0.0f},
      {1, -0.978906274f, 3.2500003e-07f},
      {63, -0.107031256f, 0.010703126f},
      {64, -0.0985937491f, 0.0121093756f},
      {126, -5.50000038e-07f, 0.0992968753f},
      {127, 0.0f, 0.103515625f},
      {128, 5.50000038e-07f, 0.110546872f},
      {129, 3.25000019e-06f, 0.117578126f},
      {131, 2.12499981e-05f, 0.131640613f},
      {160, 0.0142187504f, 0.335546851f},
      {200, 0.233593747f, 0.616796851f},
      {254, 0.992968738f, 0.996484399f},
      {255, 1.0f, 1.0f},
  };
  for (const auto& g : golden) {
    EXPECT_NEAR(decode<true>(byte_of<true>(g.code)), g.signed_value, std::abs(g.signed_value) * 1e-6f) << g.code;
    EXPECT_NEAR(decode<false>(byte_of<false>(g.code)), g.unsigned_value, std::abs(g.unsigned_value) * 1e-6f) << g.code;
  }
}

// No other code's value is nearer, except for the rounding of encode()'s one fma (1e-6 of the value), and for small
// numbers of the unsigned map, which never become zero.
template <bool kSigned>
void expect_nearest(float x) {
  static const std::vector<float> own = own_map<kSigned>();
  const float kept = decode<kSigned>(encode<kSigned>(x));
  double least = 2;
  for (std::size_t k = !kSigned && x > 0 ? 1 : 0; k < 256; ++k)
    least = std::min(least, std::abs(static_cast<double>(own[k]) - static_cast<double>(x)));
  ASSERT_LE(std::abs(static_cast<double>(kept) - static_cast<double>(x)),
            least + 1e-6 * std::abs(static_cast<double>(x)))
      << x << " as " << kept;
}
TEST(DynamicMap, EncodesToTheNearestValue) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> exponent(-9, 0);
  for (int i = 0; i < 40000; ++i) {
    const float x = std::pow(10.0f, exponent(engine));
    expect_nearest<true>(x);
    expect_nearest<true>(-x);
    expect_nearest<false>(x);
  }
  // Checks numbers around every boundary between two codes.
  const auto around = [](const std::vector<float>& map, auto&& expect) {
    for (std::size_t k = 1; k < 256; ++k)
      for (const float factor : {0.99999f, 1.0f, 1.00001f}) expect((map[k - 1] + map[k]) / 2 * factor);
  };
  around(own_map<true>(), expect_nearest<true>);
  around(own_map<false>(), expect_nearest<false>);
}

// A step is 0.9 of a decade cut in 2^e: half of it is the largest error.
TEST(DynamicMap, ErrorIsHalfAStep) {
  for (double x = 0.1; x <= 1; x += 1e-4) {
    const auto number = static_cast<float>(x);
    EXPECT_NEAR(decode<true>(encode<true>(number)), x, 0.9 / 64 / 2 + 1e-6);
    EXPECT_NEAR(decode<true>(encode<true>(-number)), -x, 0.9 / 64 / 2 + 1e-6);
    EXPECT_NEAR(decode<false>(encode<false>(number)), x, 0.9 / 128 / 2 + 1e-6);
  }
}

TEST(DynamicMap, Boundaries) {
  EXPECT_EQ(encode<true>(2e-7f), 0) << "closer to zero than to 5.5e-7";
  EXPECT_EQ(encode<true>(-2e-7f), 0);
  EXPECT_EQ(encode<true>(-0.0f), 0);
  EXPECT_EQ(decode<true>(encode<true>(1.0f)), 1.0f);
  EXPECT_EQ(decode<true>(encode<true>(1 + 0x1p-23f)), 1.0f);
  EXPECT_EQ(encode<true>(-1.0f), byte_of<true>(0)) << "the map has no -1";
  EXPECT_EQ(encode<false>(0.0f), 0);
  EXPECT_EQ(encode<false>(1e-44f), 1) << "a nonzero value is not stored as zero";
  EXPECT_EQ(encode<false>(1.0f), 255);
  EXPECT_EQ(encode<false>(1 + 0x1p-23f), 255);
}

template <bool kSigned>
void expect_round_trips() {
  for (int byte = 0; byte < 256; ++byte) {
    const float value = decode<kSigned>(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(encode<kSigned>(value), byte) << value;
  }
}
TEST(DynamicMap, ValuesComeBackAsTheirBytes) {
  expect_round_trips<true>();
  expect_round_trips<false>();
}

}  // namespace
}  // namespace strata::device
