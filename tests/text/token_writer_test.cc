#include "text/token_writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "tests/scratch_folder.h"

namespace strata::text {
namespace {

using testing::ElementsAre;
using TokenWriterIds = std::vector<std::uint32_t>;

class TokenWriterTest : public testing::Test {
 protected:
  // Calls `add` with a writer for files named t, d and m.
  template <typename Add>
  void write(std::optional<std::uint32_t> separator, const Add& add) {
    AtomicFile tokens(folder_.path() / "t"), documents(folder_.path() / "d"), mask(folder_.path() / "m");
    TokenWriter writer(tokens, documents, &mask, 2, separator);
    add(writer);
    writer.finish();
    tokens.commit();
    documents.commit();
    mask.commit();
    EXPECT_EQ(writer.hash(), hash_of("t"));
    EXPECT_EQ(writer.documents_hash(), hash_of("d"));
    EXPECT_EQ(writer.mask_hash(), hash_of("m"));
    EXPECT_EQ(writer.count(), values<std::uint16_t>("t").size());
    EXPECT_EQ(writer.documents(), values<std::uint64_t>("d").size());
  }
  std::string hash_of(const std::string& name) const {
    const std::string bytes = folder_.read(name);
    return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  }
  template <typename T>
  std::vector<T> values(const std::string& name) const {
    const std::string bytes = folder_.read(name);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  // The mask of `count` tokens as text: "101".
  std::string mask(std::size_t count) const {
    const std::string bytes = folder_.read("m");
    EXPECT_EQ(bytes.size(), (count + 7) / 8);
    std::string out;
    for (std::size_t i = 0; i < bytes.size() * 8; ++i)
      out += (static_cast<unsigned char>(bytes[i / 8]) >> i % 8 & 1) != 0 ? '1' : '0';
    EXPECT_EQ(out.substr(count).find('1'), std::string::npos) << "bits after the last token";
    return out.substr(0, count);
  }
  tests::ScratchFolder folder_;
};

TEST_F(TokenWriterTest, DocumentsBeginAfterThePreviousSeparator) {
  write(9, [](TokenWriter& writer) {
    writer.begin_document();  // nothing in it
    writer.begin_document();
    writer.add(TokenWriterIds{1, 2});
    writer.add(TokenWriterIds{3});
    writer.begin_document();
    writer.add(TokenWriterIds{});
    writer.begin_document();
    writer.add(TokenWriterIds{4});
    writer.begin_document();
    EXPECT_EQ(writer.empty_documents(), 3u);
    EXPECT_TRUE(writer.separated());
  });
  EXPECT_THAT(values<std::uint16_t>("t"), ElementsAre(1, 2, 3, 9, 4));
  EXPECT_THAT(values<std::uint64_t>("d"), ElementsAre(0, 4));
  EXPECT_EQ(mask(5), "11111");
}

TEST_F(TokenWriterTest, TheMaskHasABitPerTokenAndSeparatorsCopyTheBitBefore) {
  write(9, [](TokenWriter& writer) {
    writer.begin_document();
    writer.add(TokenWriterIds{1, 2, 3, 4}, std::vector<std::uint8_t>{0, 0, 1, 1});
    writer.begin_document();
    writer.add(TokenWriterIds{5, 6, 7}, false);
    writer.begin_document();
    writer.add(TokenWriterIds{8});
    EXPECT_EQ(writer.labels(), 4u);
  });
  EXPECT_THAT(values<std::uint16_t>("t"), ElementsAre(1, 2, 3, 4, 9, 5, 6, 7, 9, 8));
  EXPECT_EQ(mask(10), "0011100001");
}

TEST_F(TokenWriterTest, LargeFilesAreWrittenPieceByPiece) {
  TokenWriterIds ids(1'000'003);
  std::vector<std::uint8_t> counts(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::uint16_t>(i * 31);
    counts[i] = i * i % 7 < 3;
  }
  write(std::nullopt, [&](TokenWriter& writer) { writer.add(ids, counts); });
  const auto tokens = values<std::uint16_t>("t");
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin(), ids.end()));
  std::string wanted;
  for (const std::uint8_t bit : counts) wanted += bit ? '1' : '0';
  EXPECT_EQ(mask(ids.size()), wanted);
}

}  // namespace
}  // namespace strata::text
