#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "tests/text/input/compressed.h"
#include "text/input/input_bytes.h"

namespace strata::text {
namespace {

constexpr auto kAll = {Compression::gzip, Compression::zstd, Compression::xz, Compression::bzip2};

// Decompresses a stream that arrives in pieces, through a buffer of `capacity` bytes.
std::string all_of(Compression compression, const std::string& stream, std::size_t piece, std::size_t capacity) {
  const auto decompressor = make_decompressor(compression);
  std::string out, buffer(capacity, '\0');
  for (std::size_t at = 0;; at += piece) {
    const std::string part = at < stream.size() ? stream.substr(at, piece) : "";
    std::string_view in = part;
    std::size_t n = 0;
    do {
      n = decompressor->run(in, buffer, part.empty());
      out.append(buffer, 0, n);
    } while (n > 0 || !in.empty());
    if (part.empty()) return out;
  }
}

std::string stream_fault(Compression compression, const std::string& stream, std::size_t piece = 7) {
  try {
    (void)all_of(compression, stream, piece, 64);
  } catch (const StreamFault& fault) {
    return fault.message;
  }
  return "none";
}

TEST(Decompressor, ReadsConsecutiveMembersInAnyPieces) {
  rc::check([](const std::vector<std::string>& texts) {
    const std::size_t piece = *rc::gen::inRange<std::size_t>(1, 100), capacity = *rc::gen::inRange<std::size_t>(1, 100);
    for (const Compression compression : kAll) {
      std::string stream, all;
      for (const std::string& text : texts) {
        stream += tests::compressed(compression, text);
        all += text;
      }
      if (stream.empty()) continue;
      RC_ASSERT(all_of(compression, stream, piece, capacity) == all);
      RC_ASSERT(compression_of(stream) == compression);
    }
  });
}

TEST(Decompressor, ReportsTruncationAndDamage) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * 7919);
  for (const Compression compression : kAll) {
    const std::string whole = tests::compressed(compression, text);
    for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{7}})
      EXPECT_THAT(stream_fault(compression, whole.substr(0, size)), testing::HasSubstr("ends too early"))
          << name_of(compression) << " " << size;
    std::string damaged = whole;
    for (std::size_t i = whole.size() / 2; i < whole.size() / 2 + 8; ++i) damaged[i] = static_cast<char>(~damaged[i]);
    EXPECT_THAT(stream_fault(compression, damaged), testing::HasSubstr("damaged")) << name_of(compression);
    EXPECT_THAT(stream_fault(compression, whole + "and more after the end"), testing::HasSubstr("damaged"))
        << name_of(compression);
    for (const char* more : {"g", "go", "garbage", "garbage and more"})
      for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, whole.size(), whole.size() + 3})
        EXPECT_THAT(stream_fault(compression, whole + more, piece), testing::HasSubstr("data follows its end"))
            << name_of(compression) << " " << more << " " << piece;
    EXPECT_THAT(stream_fault(compression, whole + whole.substr(0, 2)), testing::HasSubstr("ends too early"))
        << name_of(compression);
    EXPECT_EQ(stream_fault(compression, whole), "none") << name_of(compression);
  }
  // xz pads to four bytes, also between two streams.
  const std::string xz = tests::compressed(Compression::xz, text);
  EXPECT_EQ(stream_fault(Compression::xz, xz + std::string(8, '\0') + xz + std::string(4, '\0')), "none");
  EXPECT_THAT(stream_fault(Compression::xz, xz + std::string(3, '\0') + xz), testing::HasSubstr("multiple of four"));
  // Tapes and tar leave such padding.
  EXPECT_EQ(stream_fault(Compression::gzip, tests::compressed(Compression::gzip, text) + std::string(100, '\0')),
            "none");
}

TEST(Decompressor, DoesNotMistakeTextForCompressedData) {
  for (const char* text : {"", "B", "BZh9 is how bzip2 begins", "BZh", "(\xb5", "\x1f", "PK"})
    EXPECT_EQ(compression_of(text), Compression::none) << text;
}

}  // namespace
}  // namespace strata::text
