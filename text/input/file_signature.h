#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::text {

// The number of bytes at the start of a file that file_kind() inspects.
inline constexpr std::size_t kSignatureBytes = 4096;

// The kind of a file that is not text, from its first bytes, and what to do with it: "is a PDF: convert it with
// pdftotext". Empty if the kind is unknown. `name` appears in the commands.
std::string file_kind(std::string_view head, std::string_view name);
// Like file_kind(), for files whose extension shows their kind ("parquet", in lower case).
std::string kind_of_extension(std::string_view extension, std::string_view name);

enum class Encoding : std::uint8_t { utf8, utf16_little, utf16_big, utf32_little, utf32_big };
std::string_view name_of(Encoding encoding);

// The encoding indicated by a byte order mark at the start of a text, and the mark's length; {utf8, 0} without a mark.
struct Mark {
  Encoding encoding = Encoding::utf8;
  std::size_t bytes = 0;
};
Mark byte_order_mark(std::string_view head);

// Guesses the encoding of a text without a byte order mark from the positions of its zero bytes. This works if the text
// is mostly ASCII. utf8: no other encoding was recognised.
Encoding encoding_from_zero_bytes(std::string_view head);

// Takes complete characters of UTF-16 or UTF-32 from the front of `in`, and appends them to `out` as UTF-8. last:
// nothing follows `in`. Returns false if the rest of `in` begins with something that is not a character.
bool decode(Encoding encoding, std::string_view& in, bool last, std::string& out);

// Counts, piece by piece, the bytes of a text that are not part of a UTF-8 character.
class Utf8Count {
 public:
  void add(std::string_view piece);
  // Call this after the last piece.
  void finish();
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t wrong() const { return wrong_; }

 private:
  std::string held_;  // the beginning of a character that continues in the next piece
  std::uint64_t bytes_ = 0, wrong_ = 0;
};

}  // namespace strata::text
