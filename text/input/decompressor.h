#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace strata::text {

enum class Compression : std::uint8_t { none, gzip, zstd, xz, bzip2 };
// "gzip"; "" for `none`.
std::string_view name_of(Compression compression);
// The compression, by the first bytes of a file; six are enough.
Compression compression_of(std::string_view head);

// A fault in a compressed stream; the caller adds the place.
struct StreamFault {
  std::string message;
};

// Decompresses a stream piece by piece, all of its members or frames one after the other, in constant memory.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Takes bytes from the front of `in` and fills `out` from its front; returns the number of bytes written. Call it
  // again with more input if it wrote nothing. last: nothing follows `in`. Throws StreamFault if the stream is damaged,
  // or ends inside a member.
  virtual std::size_t run(std::string_view& in, std::span<char> out, bool last) = 0;
};
// `compression` must not be Compression::none.
std::unique_ptr<Decompressor> make_decompressor(Compression compression);

}  // namespace strata::text
