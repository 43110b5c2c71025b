#include "device/cuda/kernels/code_table.cuh"

#include <gtest/gtest.h>

#include <cmath>

namespace strata::device::cuda {
namespace {

template <bool kSigned>
void expect_same_bytes(float number) {
  static const CodeTable table = make_code_table<kSigned>();
  ASSERT_EQ(table.byte_of<kSigned>(number) & 0xffu, encode<kSigned>(number)) << number;
  if (kSigned) {
    ASSERT_EQ(table.byte_of<kSigned>(-number) & 0xffu, encode<kSigned>(-number)) << -number;
  }
}

// Every value, and a number's byte wherever it changes: between two values, and between two powers of two.
template <bool kSigned>
void expect_same() {
  const CodeTable table = make_code_table<kSigned>();
  for (unsigned byte = 0; byte < 256; ++byte) {
    const float value = decode<kSigned>(static_cast<std::uint8_t>(byte));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(table.value[byte]), std::bit_cast<std::uint32_t>(value)) << byte;
  }
  const auto around = [](std::uint32_t bits) {
    for (std::uint32_t i = bits < 40 ? 0 : bits - 40; i < bits + 40; ++i)
      expect_same_bytes<kSigned>(std::bit_cast<float>(i));
  };
  constexpr std::uint32_t kOne = 0x3f800000;
  for (std::uint32_t bits = 0; bits <= kOne; bits += 1u << 23) around(bits);
  for (std::uint32_t bits = 0; bits <= kOne; bits += 4099) expect_same_bytes<kSigned>(std::bit_cast<float>(bits));
  // Each threshold, by bisection: bytes without a sign rise with the number.
  for (int byte = 0; byte < (kSigned ? 128 : 255); ++byte) {
    std::uint32_t below = 0, above = kOne;
    while (above - below > 1) {
      const std::uint32_t middle = (below + above) / 2;
      const auto code = encode<kSigned>(std::bit_cast<float>(middle));
      const int size = kSigned ? std::abs(static_cast<std::int8_t>(code)) : code;
      (size > byte ? above : below) = middle;
    }
    around(above);
  }
}
TEST(CodeTable, AgreesWithTheDynamicMap) {
  expect_same<true>();
  expect_same<false>();
}

}  // namespace
}  // namespace strata::device::cuda
