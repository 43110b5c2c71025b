#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata {

// Calls use(number, value of a varint, bytes of a string or message) for each field of a protobuf message, up to the
// first malformed one. Fields of a fixed size are skipped.
template <typename Use>
void each_protobuf_field(std::string_view message, Use&& use) {
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (!message.empty()) {
    const std::uint64_t key = varint(), number = key >> 3, type = key & 7;
    if (type == 0) {
      use(number, varint(), std::string_view());
      continue;
    }
    if (type != 1 && type != 2 && type != 5) return;
    const std::uint64_t size = type == 1 ? 8 : type == 5 ? 4 : varint();
    if (size > message.size()) return;
    if (type == 2) use(number, 0, message.substr(0, size));
    message.remove_prefix(size);
  }
}

}  // namespace strata
