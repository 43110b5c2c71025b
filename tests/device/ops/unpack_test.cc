#include <random>

#include "device/cpu/kernels/tables.h"
#include "device/numeric/nf4.h"
#include "device/ops/elementwise.h"
#include "tests/device/arrays.h"

namespace strata::device {
namespace {

using testing::Array;
using testing::in_lane;
using testing::kDTypes;

constexpr std::size_t kBlocks = 5;

std::vector<std::byte> any_blocks(StorageFormat format) {
  std::vector<std::byte> bytes(stored_bytes(format, kBlocks * kNf4Block));
  std::mt19937 engine(3);
  for (std::byte& b : bytes) b = static_cast<std::byte>(engine());
  std::uniform_real_distribution<float> uniform(0.001f, 2);
  const std::size_t block = stored_bytes(format, 1), floats = format == StorageFormat::nf4 ? 2 : kNf4Scales;
  for (std::size_t i = 0; i < kBlocks; ++i)
    for (std::size_t f = 0; f < floats; ++f) {
      const float x = uniform(engine);
      std::memcpy(&bytes[i * block + f * sizeof x], &x, sizeof x);
    }
  return bytes;
}

// Follows the definition, element by element.
float value_at(StorageFormat format, const std::vector<std::byte>& bytes, std::size_t element) {
  const std::byte* block = bytes.data() + element / kNf4Block * stored_bytes(format, 1);
  const std::size_t i = element % kNf4Block, s = i / 64;
  float floats[256];
  std::memcpy(floats, block, format == StorageFormat::nf4 ? 8 : 1024);
  float scale = floats[s];
  std::size_t codes = 1024;
  if (format == StorageFormat::nf4) {
    scale = scale_value(std::to_integer<std::uint8_t>(block[8 + s])) * floats[0];
    scale += floats[1];
    codes = 8 + 256;
  }
  const int pair = std::to_integer<int>(block[codes + i / 2]);
  return kNf4Values[i % 2 == 0 ? pair / 16 : pair % 16] * scale;
}

TEST(Unpack, MultipliesCodeByScaleAndRoundsOnce) {
  for (const StorageFormat format : {StorageFormat::nf4, StorageFormat::nf4_plain}) {
    const std::vector<std::byte> bytes = any_blocks(format);
    for (const DType dtype : kDTypes) {
      Array out(dtype, kBlocks * kNf4Block);
      in_lane(3, [&](Lane& lane) { unpack(lane, format, bytes.data(), out.view()); });
      for (std::size_t i = 0; i < out.size(); ++i) {
        Array expected(dtype, 1);
        expected.set(0, value_at(format, bytes, i));
        ASSERT_EQ(out[i], expected[0]) << name_of(dtype) << " at " << i;
      }
    }
  }
}

TEST(Unpack, SameBitsOnAnyThreadsAndTheCpu) {
  const std::vector<std::byte> bytes = any_blocks(StorageFormat::nf4);
  for (const DType dtype : kDTypes) {
    const auto run = [&](int threads, Device device) {
      Array out(dtype, kBlocks * kNf4Block);
      in_lane(
          threads, [&](Lane& lane) { unpack(lane, StorageFormat::nf4, bytes.data(), out.view()); }, device);
      return std::vector<Array>{out};
    };
    testing::expect_same_bits_on_any_threads([&](int threads) { return run(threads, testing::kDevice); });
    testing::expect_bits_of_the_cpu([&](Device device) { return run(2, device); });
  }
}

TEST(Unpack, ZeroBytesAreZeros) {
  for (const StorageFormat format : {StorageFormat::nf4, StorageFormat::nf4_plain}) {
    const std::vector<std::byte> bytes(stored_bytes(format, kNf4Block));
    Array out(DType::bf16, kNf4Block);
    in_lane(1, [&](Lane& lane) { unpack(lane, format, bytes.data(), out.view()); });
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 0);
  }
}

TEST(Unpack, SameBitsOnBothInstructionSets) {
  const std::vector<std::byte> bytes = any_blocks(StorageFormat::nf4_plain);
  testing::expect_same_bits_on_both_isas(
      cpu::avx2::unpack_kernels_table, cpu::avx512::unpack_kernels_table, [&](const cpu::UnpackKernels& kernels) {
        std::vector<Array> all;
        for (const DType dtype : kDTypes) {
          Array& out = all.emplace_back(dtype, kNf4Block);
          kernels.nf4[static_cast<std::size_t>(dtype)](reinterpret_cast<const float*>(bytes.data()),
                                                       bytes.data() + kNf4PlainCodes, out.data());
        }
        return all;
      });
}

}  // namespace
}  // namespace strata::device
