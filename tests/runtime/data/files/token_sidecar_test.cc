#include "runtime/data/files/token_sidecar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct TokenSidecarTest : testing::Test {
  tests::ScratchFolder folder_;
};

TEST_F(TokenSidecarTest, NamesFilesNextToTheTokens) {
  const auto path = folder_.write("t.bin", "123456");
  TokenSidecar sidecar{.vocab_size = 256, .width = 2, .tokenizer = "byte", .hash = "", .count = 3};
  sidecar.documents = {2, "0123456789abcdef"};
  sidecar.mask = {1, "fedcba9876543210"};
  folder_.write("t.bin.json", to_json(sidecar));
  const auto read = read_sidecar(path);
  ASSERT_TRUE(read && read->documents && read->mask);
  EXPECT_EQ(read->documents->count, 2u);
  EXPECT_EQ(read->documents->hash, "0123456789abcdef");
  EXPECT_EQ(read->mask->count, 1u);
  EXPECT_EQ(read->mask->hash, "fedcba9876543210");
}

TEST_F(TokenSidecarTest, LabelsHaveAProblemAndNames) {
  const auto path = folder_.write("t.bin", "123456");
  TokenSidecar sidecar{.vocab_size = 256, .width = 2, .tokenizer = "byte", .hash = "", .count = 3};
  sidecar.labels = TokenSidecar::Labels{1, "0123456789abcdef", "single_label_classification", {"a", "b"}, false};
  const std::string whole = to_json(sidecar);
  folder_.write("t.bin.json", whole);
  EXPECT_EQ(read_sidecar(path)->labels->names, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(read_sidecar(path)->labels->vectors);
  sidecar.labels->vectors = true;
  folder_.write("t.bin.json", to_json(sidecar));
  EXPECT_TRUE(read_sidecar(path)->labels->vectors);
  for (const char* key : {"problem", "names"}) {
    SCOPED_TRACE(key);
    std::string other = whole;
    const std::size_t at = other.find(fmt::format("\"{}\"", key));
    ASSERT_NE(at, std::string::npos);
    folder_.write("t.bin.json", other.replace(at + 1, 1, "x"));
    EXPECT_FAILURE((void)read_sidecar(path), Exit::corrupt,
                   AllOf(HasSubstr("t.bin.json"), HasSubstr("expected labels: problem and a list of names")));
  }
}

TEST_F(TokenSidecarTest, SpecialTokensAreAListOfTokens) {
  const auto path = folder_.write("t.bin", "123456");
  TokenSidecar sidecar{.vocab_size = 256, .width = 2, .tokenizer = "byte", .hash = "", .count = 3};
  sidecar.special_tokens = {0, 255};
  const std::string whole = to_json(sidecar);
  folder_.write("t.bin.json", whole);
  EXPECT_EQ(read_sidecar(path)->special_tokens, (std::vector<std::uint32_t>{0, 255}));
  const std::size_t at = whole.find("[0");
  ASSERT_NE(at, std::string::npos);
  for (const char* other : {"7", "\"0\"", "{}", "[256]", "[-1]", "[\"a\"]"}) {
    SCOPED_TRACE(other);
    folder_.write("t.bin.json", whole.substr(0, at) + other + whole.substr(whole.find(']', at) + 1));
    EXPECT_FAILURE((void)read_sidecar(path), Exit::corrupt, HasSubstr("special_tokens: "));
  }
}

}  // namespace
}  // namespace strata::runtime
