#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "text/input/file_signature.h"

namespace strata::text {
namespace {

using namespace std::string_view_literals;

TEST(ByteOrderMark, IdentifiesTheEncoding) {
  const std::pair<std::string_view, std::pair<Encoding, std::size_t>> cases[] = {
      {"\xef\xbb\xbfx"sv, {Encoding::utf8, 3}},
      {"\xff\xfex\0"sv, {Encoding::utf16_little, 2}},
      {"\xfe\xff\0x"sv, {Encoding::utf16_big, 2}},
      {"\xff\xfe\0\0"sv, {Encoding::utf32_little, 4}},
      {"\0\0\xfe\xff"sv, {Encoding::utf32_big, 4}},
      {"x"sv, {Encoding::utf8, 0}},
      {""sv, {Encoding::utf8, 0}},
  };
  for (const auto& [head, wanted] : cases) {
    const Mark mark = byte_order_mark(head);
    EXPECT_EQ(mark.encoding, wanted.first) << head;
    EXPECT_EQ(mark.bytes, wanted.second) << head;
  }
}

TEST(EncodingFromZeroBytes, UsesThePlacesOfZeros) {
  EXPECT_EQ(encoding_from_zero_bytes("a\0b\0c\0d\0"sv), Encoding::utf16_little);
  EXPECT_EQ(encoding_from_zero_bytes("\0a\0b\0c\0d"sv), Encoding::utf16_big);
  EXPECT_EQ(encoding_from_zero_bytes("a\0\0\0b\0\0\0"sv), Encoding::utf32_little);
  EXPECT_EQ(encoding_from_zero_bytes("\0\0\0a\0\0\0b"sv), Encoding::utf32_big);
  EXPECT_EQ(encoding_from_zero_bytes("abcdefgh"sv), Encoding::utf8);
  EXPECT_EQ(encoding_from_zero_bytes("a\0b\0c\0\0\0"sv), Encoding::utf8)
      << "too many zeros for UTF-16, too few for UTF-32";
  EXPECT_EQ(encoding_from_zero_bytes("a\0"sv), Encoding::utf8) << "too short to tell";
}

// An incomplete character waits for more bytes, unless nothing follows.
TEST(Decode, ConsumesCompleteCharacters) {
  std::string out;
  std::string_view in = "a\0\x3d\xd8\0\xde\xac"sv;  // "a", a pair of surrogates, half a character
  EXPECT_TRUE(decode(Encoding::utf16_little, in, false, out));
  EXPECT_EQ(out, "a\xf0\x9f\x98\x80");
  EXPECT_EQ(in, "\xac"sv);
  EXPECT_FALSE(decode(Encoding::utf16_little, in, true, out));

  out.clear();
  in = "\0\x01\xf6\0"sv;
  EXPECT_TRUE(decode(Encoding::utf32_big, in, true, out));
  EXPECT_EQ(out, "\xf0\x9f\x98\x80");
}

TEST(Decode, RefusesInvalidCharactersWithTheirOffset) {
  for (const std::string_view wrong : {"\0\xdc"sv,
                                       "\x3d\xd8"
                                       "a\0"sv}) {  // a low surrogate; a high one alone
    std::string out;
    const std::string text = std::string("a\0"sv) + std::string(wrong);
    std::string_view in = text;
    EXPECT_FALSE(decode(Encoding::utf16_little, in, true, out));
    EXPECT_EQ(out, "a");
    EXPECT_EQ(in, wrong);
  }
  std::string out;
  std::string_view in = "\0\x11\0\0"sv;  // beyond the last code point
  EXPECT_FALSE(decode(Encoding::utf32_big, in, true, out));
}

// The result does not depend on where a text is cut into pieces.
TEST(Utf8Count, CountsWrongBytes) {
  const std::string_view text = "a\xc3\xa9\xff\xf0\x9f\x98\x80\xe2\x82z\xc3"sv;  // wrong: ff, e2 82, the last c3
  for (std::size_t first = 0; first <= text.size(); ++first)
    for (std::size_t second = first; second <= text.size(); ++second) {
      Utf8Count count;
      count.add(text.substr(0, first));
      count.add(text.substr(first, second - first));
      count.add(text.substr(second));
      count.finish();
      EXPECT_EQ(count.bytes(), text.size());
      EXPECT_EQ(count.wrong(), 4u) << first << ' ' << second;
    }
}

}  // namespace
}  // namespace strata::text
