#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::text {

enum class Encoding : std::uint8_t { utf8, utf16_little, utf16_big, utf32_little, utf32_big };
std::string_view name_of(Encoding encoding);

// What the byte order mark at a text's beginning says, and its length; {utf8, 0} without one.
struct Mark {
  Encoding encoding = Encoding::utf8;
  std::size_t bytes = 0;
};
Mark byte_order_mark(std::string_view head);

// What text without a mark looks like whose characters are mostly ASCII: by where its zeros are. utf8: none of these.
Encoding guess_of_zeros(std::string_view head);

// Takes whole characters of UTF-16 or UTF-32 from the front of `in`, and appends them to `out` as UTF-8. last: nothing
// comes after `in`. Returns false at what is no character: `in` begins with it.
bool decode(Encoding encoding, std::string_view& in, bool last, std::string& out);

// Counts, piece by piece, the bytes of a text that belong to no character of UTF-8.
class Utf8Count {
 public:
  void add(std::string_view piece);
  // After the last piece.
  void finish();
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t wrong() const { return wrong_; }

 private:
  std::string held_;  // the beginning of a character whose end is in the next piece
  std::uint64_t bytes_ = 0, wrong_ = 0;
};

}  // namespace strata::text
