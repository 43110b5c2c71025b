#include "runtime/data/files/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::TokenFolder;

class DocumentsTest : public testing::Test {
 protected:
  // Writes the sidecar of a.bin again, with the modification that `change` makes.
  template <typename Change>
  void with_sidecar(const Change& change) {
    TokenSidecar sidecar = *read_sidecar(folder_.folder().path() / "a.bin");
    change(sidecar);
    folder_.put("a.bin.json", to_json(sidecar));
  }
  void with_begins(const std::vector<std::uint64_t>& begins) {
    const std::string hash = folder_.put("a.bin.documents", TokenFolder::bytes_of(begins));
    with_sidecar([&](TokenSidecar& s) { s.documents = {begins.size(), hash}; });
  }
  void expect_refused(Exit code, const testing::Matcher<std::string>& what) const {
    const auto files = folder_.open({"a.bin"});
    EXPECT_FAILURE(Documents{files[0]}, code, what);
  }
  TokenFolder folder_;
};

TEST_F(DocumentsTest, ReadsBoundariesAndMasks) {
  std::string mask;
  for (int i = 0; i < 200; ++i) mask += i * i % 5 < 2 ? '1' : '0';
  folder_.write("a.bin", {3, 190, 7}, mask);
  const auto files = folder_.open({"a.bin"});
  const Documents documents(files[0]);
  EXPECT_EQ(documents.count(), 3u);
  EXPECT_EQ(documents.begin(1), 3u);
  EXPECT_EQ(documents.begin(3), 200u);
  EXPECT_EQ(documents.document_of(0), 0u);
  EXPECT_EQ(documents.document_of(192), 1u);
  EXPECT_EQ(documents.document_of(193), 2u);
  EXPECT_EQ(documents.document_of(199), 2u);
  for (std::uint64_t begin = 0; begin < 200; begin += 7)
    for (std::uint64_t end = begin; end <= 200; end += 3) {
      const auto part = mask.substr(begin, end - begin);
      ASSERT_EQ(documents.labels(begin, end), static_cast<std::uint64_t>(std::count(part.begin(), part.end(), '1')));
    }
  EXPECT_TRUE(documents.counts(0));
  EXPECT_FALSE(documents.counts(2));
}

TEST_F(DocumentsTest, WithoutAMaskAllTokensCount) {
  folder_.write("a.bin", {3, 2});
  const auto files = folder_.open({"a.bin"});
  const Documents documents(files[0]);
  EXPECT_FALSE(documents.has_mask());
  EXPECT_EQ(documents.labels(1, 5), 4u);
  EXPECT_EQ(documents.labels(4, 4), 0u);
  EXPECT_TRUE(documents.counts(4));
}

TEST_F(DocumentsTest, FilesThatContradictTheSidecarAreRefused) {
  folder_.write("a.bin", {3, 2, 4}, "011010110");
  with_begins({0, 3});
  {
    const auto files = folder_.open({"a.bin"});
    EXPECT_EQ(Documents{files[0]}.count(), 2u);
  }
  with_begins({1, 3});
  expect_refused(Exit::corrupt, AllOf(HasSubstr("a.bin.documents, offset 0: document 1 of 2 begins at token 1")));
  with_begins({0, 5, 3});
  expect_refused(Exit::corrupt, HasSubstr("document 2 of 3 begins at token 5, but the next one at 3"));
  with_begins({0, 3, 3, 5});
  expect_refused(Exit::corrupt, HasSubstr("document 2 of 4 is empty"));
  with_begins({0, 3, 9});
  expect_refused(Exit::corrupt, HasSubstr("document 3 of 3 begins at token 9, but there are only 9"));
  with_begins({0, 3});
  with_sidecar([](TokenSidecar& s) { s.documents->count = 3; });
  expect_refused(Exit::corrupt, AllOf(HasSubstr("a.bin.documents has 16 bytes"), HasSubstr("implies 24")));
  with_begins({0, 3});
  with_sidecar([](TokenSidecar& s) { s.documents->hash = "0123456789abcdef"; });
  expect_refused(Exit::corrupt, AllOf(HasSubstr("has the hash"), HasSubstr("records 0123456789abcdef")));
  with_begins({0, 3});
  with_sidecar([](TokenSidecar& s) { s.mask->count = 4; });
  expect_refused(Exit::corrupt, AllOf(HasSubstr("a.bin.mask counts 5 tokens"), HasSubstr("says 4")));
  folder_.put("a.bin.mask", "abc");
  expect_refused(Exit::corrupt, AllOf(HasSubstr("a.bin.mask has 3 bytes"), HasSubstr("implies 2")));
  std::filesystem::remove(folder_.folder().path() / "a.bin.mask");
  expect_refused(Exit::usage, AllOf(HasSubstr("a.bin.mask is missing"), HasSubstr("sidecar")));
  with_sidecar([](TokenSidecar& s) { s.documents.reset(); });
  expect_refused(Exit::usage, AllOf(HasSubstr("a.bin does not say where documents begin"), HasSubstr("\"stream\"")));
}

}  // namespace
}  // namespace strata::runtime
