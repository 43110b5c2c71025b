#include "runtime/weights/floats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "device/numeric/dtype.h"
#include "device/numeric/exact_sum.h"
#include "models/files/safetensors.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using device::StorageFormat;

TEST(FloatsTest, ReturnTheStoredNumbers) {
  const float fp32[] = {1.5f, -0.0f, 1e-30f};
  EXPECT_THAT(floats_of(StorageFormat::fp32, std::as_bytes(std::span(fp32))),
              testing::ElementsAre(1.5f, -0.0f, 1e-30f));
  const std::uint16_t bf16[] = {0x3fc0, 0xc000};
  EXPECT_THAT(floats_of(StorageFormat::bf16, std::as_bytes(std::span(bf16))), testing::ElementsAre(1.5f, -2.0f));
  const std::uint16_t fp16[] = {0x3e00, 0xc000};
  EXPECT_THAT(floats_of(StorageFormat::fp16, std::as_bytes(std::span(fp16))), testing::ElementsAre(1.5f, -2.0f));
}

// Compares with bitsandbytes (tests/golden/make_nf4.py).

using device::kNf4Block, device::StorageFormat;

class Nf4Block : public testing::TestWithParam<StorageFormat> {
 protected:
  StorageFormat format() const { return GetParam(); }
  bool plain() const { return format() == StorageFormat::nf4_plain; }
  const models::StoredTensor& tensor(const std::string& name) const {
    const models::StoredTensor* found = file_.find(name);
    EXPECT_NE(found, nullptr) << name;
    return *found;
  }
  const models::StoredTensor& of(const std::string& what) const {
    return tensor((plain() ? "nf4_plain." : "nf4.") + what);
  }
  static std::vector<float> floats(const models::StoredTensor& tensor) {
    std::size_t size = 1;
    for (const std::uint64_t d : tensor.shape) size *= d;
    std::vector<float> out(size);
    models::read_elements(tensor, 0, out);
    return out;
  }
  std::span<const std::byte> codes() const { return of("codes").bytes; }
  std::vector<float> weights() const { return floats(tensor("weights")); }
  float offset() const { return plain() ? 0 : floats(of("offset"))[0]; }
  std::size_t blocks() const { return (weights().size() + kNf4Block - 1) / kNf4Block; }

  // A block assembled from bitsandbytes' tensors.
  std::vector<std::byte> block(std::size_t i) const {
    std::vector<std::byte> out(stored_bytes(format(), kNf4Block));
    const auto put = [&](std::size_t at, std::span<const std::byte> bytes, std::size_t begin, std::size_t most) {
      const auto part = bytes.subspan(begin, std::min(most, bytes.size() - begin));
      std::memcpy(&out[at], part.data(), part.size());
    };
    if (plain()) {
      put(0, of("scales").bytes, i * 1024, 1024);
    } else {
      put(0, of("shared").bytes, i * 4, 4);
      put(4, of("offset").bytes, 0, 4);
      put(8, of("scales").bytes, i * 256, 256);
    }
    put(out.size() - 8192, codes(), i * 8192, 8192);
    return out;
  }

  models::Safetensors file_ = models::Safetensors::open(tests::source_dir() / "tests/golden/nf4/matrix.safetensors");
};

TEST_P(Nf4Block, ReadsLikeBitsandbytes) {
  std::vector<float> read;
  for (std::size_t i = 0; i < blocks(); ++i) {
    std::vector<float> values(std::min(kNf4Block, weights().size() - i * kNf4Block));
    read_nf4_block(format(), block(i), values);
    read.insert(read.end(), values.begin(), values.end());
  }
  const std::vector<float> half = floats(of("bfloat16"));
  ASSERT_EQ(read.size(), half.size());
  for (std::size_t i = 0; i < read.size(); ++i)
    ASSERT_EQ(device::to_float(device::from_float<device::bf16>(read[i])), half[i]) << i;
  if (plain()) return;
  const std::vector<float> full = floats(of("float32"));
  for (std::size_t i = 0; i < read.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]), std::bit_cast<std::uint32_t>(full[i])) << i;
}

TEST_P(Nf4Block, WritesLikeBitsandbytes) {
  const std::vector<float> all = weights();
  for (std::size_t i = 0; i < blocks(); ++i) {
    const auto own = std::span(all).subspan(i * kNf4Block, std::min(kNf4Block, all.size() - i * kNf4Block));
    std::vector<std::byte> written(stored_bytes(format(), kNf4Block));
    write_nf4_block(format(), own, offset(), written);
    EXPECT_EQ(written, block(i)) << i;
  }
}

TEST_P(Nf4Block, OffsetIsTheMeanOfScalesToAUnit) {
  if (plain()) return;
  const std::vector<float> all = weights();
  device::ExactSum sum;
  std::size_t count = 0;
  for (std::size_t at = 0; at < all.size(); at += 64, ++count)
    sum.add(nf4_scale(std::span(all).subspan(at, std::min<std::size_t>(64, all.size() - at))));
  const auto mean = static_cast<float>(sum.round() / static_cast<double>(count));
  EXPECT_LE(std::abs(mean - offset()), std::nextafter(offset(), 9.0f) - offset());
}

INSTANTIATE_TEST_SUITE_P(, Nf4Block, testing::Values(StorageFormat::nf4, StorageFormat::nf4_plain));

TEST(ScaleValue, IsBitsandbytesMap) {
  const auto file = models::Safetensors::open(tests::source_dir() / "tests/golden/nf4/matrix.safetensors");
  std::vector<float> map(256);
  models::read_elements(*file.find("nf4.map"), 0, map);
  for (unsigned code = 0; code < 256; ++code)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(device::scale_value(static_cast<std::uint8_t>(code))),
              std::bit_cast<std::uint32_t>(map[code]))
        << code;
}

// A double-quantised scale near 0 may come out below it.
TEST_P(Nf4Block, IsRewrittenFromItsValues) {
  if (!plain()) return;
  for (std::size_t i = 0; i < blocks(); ++i) {
    std::vector<std::byte> stored = block(i);
    stored[3] ^= std::byte{0x80};  // the sign of the first scale
    std::vector<float> values(std::min(kNf4Block, weights().size() - i * kNf4Block));
    read_nf4_block(format(), stored, values);
    std::vector<std::byte> written(stored.size());
    rewrite_nf4_block(values, written);
    EXPECT_EQ(written, stored) << i;
  }
}

TEST(Nf4BlockOfZeros, DecodesToZeros) {
  const std::vector<float> zeros(100);
  std::vector<float> read(100, 1);
  for (const StorageFormat format : {StorageFormat::nf4, StorageFormat::nf4_plain}) {
    std::vector<std::byte> block(stored_bytes(format, kNf4Block));
    write_nf4_block(format, zeros, 0, block);
    read_nf4_block(format, block, read);
    EXPECT_EQ(read, zeros);
  }
}

}  // namespace
}  // namespace strata::runtime
