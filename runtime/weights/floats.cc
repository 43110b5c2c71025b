#include "runtime/weights/floats.h"

#include <cstring>

#include "base/error.h"
#include "runtime/weights/nf4_block.h"

namespace strata::runtime {

std::vector<float> floats_of(device::StorageFormat format, std::span<const std::byte> bytes) {
  using device::StorageFormat;
  STRATA_CHECK(format != StorageFormat::block8);
  if (is_nf4(format)) {
    const std::size_t block = stored_bytes(format, device::kNf4Block);
    std::vector<float> out(bytes.size() / block * device::kNf4Block);
    for (std::size_t i = 0; i * block < bytes.size(); ++i)
      read_nf4_block(format, bytes.subspan(i * block, block),
                     std::span(out).subspan(i * device::kNf4Block, device::kNf4Block));
    return out;
  }
  std::vector<float> out(bytes.size() / stored_bytes(format, 1));
  const auto read = [&](auto value) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      out[i] = device::to_float(value);
    }
  };
  if (format == StorageFormat::fp32) read(0.0f);
  if (format == StorageFormat::bf16) read(device::bf16{});
  if (format == StorageFormat::fp16) read(device::fp16{});
  return out;
}

}  // namespace strata::runtime
