#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/failure.h"
#include "text/pipeline/pipeline.h"

namespace strata::text {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<std::string>;

// The text that the decoders of this JSON produce from the tokens.
std::string decoded(const std::string& json, Tokens tokens) {
  const std::string file = "tokenizer.json";
  const JsonDocument document(json, file, "JSON");
  for (const Decoder& decoder : make_decoders(document.root())) decoder(tokens);
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

TEST(Decoder, MapsCharactersToBytes) {
  EXPECT_EQ(decoded(R"({"type":"ByteLevel"})", {"\xc4\xa0"
                                                "a",
                                                "\xc3\x83", "\xc2\xa9"}),
            " a\xc3\xa9");
  EXPECT_EQ(decoded(R"({"type":"ByteLevel"})", {"\xc3\x83"}), "\xef\xbf\xbd") << "an incomplete character";
}

TEST(Decoder, ByteFallbackJoinsTheBytesOfACharacter) {
  const std::string json = R"({"type":"ByteFallback"})";
  EXPECT_EQ(decoded(json, {"a", "<0xC3>", "<0xA9>", "b"}),
            "a\xc3\xa9"
            "b");
  EXPECT_EQ(decoded(json, {"<0xC3>", "b"}),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(decoded(json, {"<0xZZ>", "<0x1>"}), "<0xZZ><0x1>") << "they only resemble bytes";
}

TEST(Decoder, MetaspaceDropsTheFirstSpace) {
  EXPECT_EQ(decoded(R"({"type":"Metaspace"})", {"\xe2\x96\x81the", "\xe2\x96\x81sea"}), "the sea");
  EXPECT_EQ(decoded(R"({"type":"Metaspace","prepend_scheme":"never"})", {"\xe2\x96\x81the"}), " the");
}

TEST(Decoder, WordPieceJoinsWords) {
  const Tokens tokens = {"wa", "##ter", "is", "n't", "."};
  EXPECT_EQ(decoded(R"({"type":"WordPiece"})", tokens), "water isn't.");
  EXPECT_EQ(decoded(R"({"type":"WordPiece","cleanup":false})", tokens), "water is n't .");
}

TEST(Decoder, ASuffixIsASpaceExceptAtTheEnd) {
  EXPECT_EQ(decoded(R"({"type":"BPEDecoder"})", {"sea</w>", "wa", "ter</w>"}), "sea water");
}

// The sequence is that of Llama's tokenizer.json.
TEST(Decoder, ASequenceAppliesInOrder) {
  const std::string json = R"({"type":"Sequence","decoders":[
      {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
      {"type":"Strip","content":" ","start":1,"stop":0}]})";
  EXPECT_EQ(decoded(json, {"\xe2\x96\x81", "\xe2\x96\x81the", "<0x0A>", "\xe2\x96\x81"}), " the\n ");
}

TEST(Decoder, StripRemovesCharactersFromEitherEnd) {
  const auto strip = [](int start, int stop) {
    return fmt::format(R"({{"type":"Strip","content":"_","start":{},"stop":{}}})", start, stop);
  };
  EXPECT_EQ(decoded(strip(1, 2), {"___a___"}), "__a_");
  EXPECT_EQ(decoded(strip(2, 0), {"_a", "___b"}), "a_b") << "each token's own";
}

TEST(Decoder, NamesUnsupportedDecoders) {
  EXPECT_FAILURE(decoded(R"({"type":"CTC"})", {}), Exit::usage, HasSubstr("the decoder CTC is not supported"));
  EXPECT_FAILURE(decoded(R"({"type":"Strip","content":"","start":1,"stop":0})", {}), Exit::corrupt,
                 HasSubstr("a \"content\" of one character"));
}

}  // namespace
}  // namespace strata::text
