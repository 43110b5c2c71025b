#include "text/subwords/vocabulary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <vector>

#include "tests/scratch_folder.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

using VocabularyIds = std::vector<std::uint32_t>;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(VocabularyTest, ATextBelongsToTheFirstOfTwoTokens) {
  Vocabulary vocabulary;
  vocabulary.add_last("a", 1, false);
  vocabulary.add_last("b", 1, false);
  EXPECT_EQ(vocabulary.find("b"), 1u);
  EXPECT_EQ(*vocabulary.token(1), "a");
  EXPECT_EQ(*vocabulary.sharing(), "b");
  EXPECT_EQ(vocabulary.count(), 2u);
  vocabulary.add_last("b", 3, false);  // again, with another ID
  EXPECT_EQ(vocabulary.find("b"), 3u);
  EXPECT_EQ(*vocabulary.token(1), "a");
  EXPECT_EQ(*vocabulary.token(3), "b");
  EXPECT_EQ(vocabulary.count(), 2u);
  EXPECT_FALSE(vocabulary.add("c", 3)) << "the id is taken";
  EXPECT_FALSE(vocabulary.add("a", 4)) << "the string is taken";
  EXPECT_EQ(vocabulary.find("c"), std::nullopt);
  EXPECT_EQ(vocabulary.limit(), 4u);
}

// The result is that of a map from strings to IDs. The library's reverse map may have either string. (The IDs are those
// of tokenizers 0.23.)
TEST(VocabularyTest, TokensMayShareAnId) {
  const auto with_model = [](std::string_view model) {
    const tests::ScratchFolder folder;
    folder.write("tokenizer.json",
                 fmt::format(R"({{"pre_tokenizer":{{"type":"WhitespaceSplit"}},"model":{}}})", model));
    return load_tokenizer(folder.path());
  };
  const auto words = with_model(R"({"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1,"b":1,"c":2}})");
  EXPECT_EQ(words->encode("a b c"), (VocabularyIds{1, 1, 2}));
  EXPECT_EQ(words->decode(VocabularyIds{1, 2}), "a c");
  EXPECT_EQ(words->vocab_size(), 3u);
  EXPECT_THAT(words->notes(), ElementsAre(AllOf(HasSubstr("1 token "), HasSubstr("\"b\" has 1, as does \"a\""))));
  const auto pairs = with_model(R"({"type":"BPE","vocab":{"a":0,"b":1,"c":1,"ab":2},"merges":["a b"]})");
  EXPECT_EQ(pairs->encode("ab b c"), (VocabularyIds{2, 1, 1}));
  // The longest word limits the search.
  const auto pieces = with_model(R"({"type":"WordPiece","unk_token":"u","vocab":{"u":0,"a":1,"abcd":1,"b":2}})");
  EXPECT_EQ(pieces->encode("abcd b"), (VocabularyIds{1, 2}));
}

}  // namespace
}  // namespace strata::text
