#pragma once
#include <cstdint>
#include <string_view>

namespace strata {

// The CRC-32C (Castagnoli's polynomial, RFC 3720) of the bytes. TensorBoard's event files use it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace strata
