#include "runtime/weights/floats.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <span>

#include "device/numeric/dtype.h"

namespace strata::runtime {
namespace {

using device::StorageFormat;

TEST(FloatsTest, AreTheStoredNumbers) {
  const float fp32[] = {1.5f, -0.0f, 1e-30f};
  EXPECT_THAT(floats_of(StorageFormat::fp32, std::as_bytes(std::span(fp32))),
              testing::ElementsAre(1.5f, -0.0f, 1e-30f));
  const std::uint16_t bf16[] = {0x3fc0, 0xc000};
  EXPECT_THAT(floats_of(StorageFormat::bf16, std::as_bytes(std::span(bf16))), testing::ElementsAre(1.5f, -2.0f));
  const std::uint16_t fp16[] = {0x3e00, 0xc000};
  EXPECT_THAT(floats_of(StorageFormat::fp16, std::as_bytes(std::span(fp16))), testing::ElementsAre(1.5f, -2.0f));
}

}  // namespace
}  // namespace strata::runtime
