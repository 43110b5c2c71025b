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

TextTemplate made(const std::string& json) {
  const std::string file = "tokenizer.json";
  const JsonDocument document(json, file, "JSON");
  return make_text_template(document.root());
}

// "101:0 A:0 102:0": a piece's id or text, and its type.
std::string shown(const std::vector<TextTemplate::Piece>& pieces) {
  std::string out;
  for (const auto& [kind, id, type] : pieces) {
    const std::string what = kind == TextTemplate::Kind::token   ? std::to_string(id)
                             : kind == TextTemplate::Kind::first ? "A"
                                                                 : "B";
    out += fmt::format("{}{}:{}", out.empty() ? "" : " ", what, type);
  }
  return out;
}

TEST(PostProcessor, ReadsBertsAndRobertas) {
  const TextTemplate bert = made(R"({"type":"BertProcessing","cls":["[CLS]",101],"sep":["[SEP]",102]})");
  EXPECT_EQ(shown(bert.single), "101:0 A:0 102:0");
  EXPECT_EQ(shown(bert.pair), "101:0 A:0 102:0 B:1 102:1");
  const TextTemplate roberta = made(R"({"type":"RobertaProcessing","cls":["<s>",0],"sep":["</s>",2]})");
  EXPECT_EQ(shown(roberta.single), "0:0 A:0 2:0");
  EXPECT_EQ(shown(roberta.pair), "0:0 A:0 2:0 2:0 B:0 2:0");
}

const std::string kTemplate = R"({"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
    "pair":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}},
            {"Sequence":{"id":"B","type_id":1}}],
    "special_tokens":{"<s>":{"id":"<s>","ids":[1]},"</s>":{"id":"</s>","ids":[2,3]}}})";

TEST(PostProcessor, AppliesATemplate) {
  EXPECT_EQ(shown(made(kTemplate).single), "1:0 A:0");
  EXPECT_EQ(shown(made(kTemplate).pair), "A:0 2:0 3:0 B:1") << "a token of two ids";
}

TEST(PostProcessor, ASequenceNestsPostProcessors) {
  const std::string bytes = R"({"type":"ByteLevel"})";
  EXPECT_EQ(shown(made(bytes).single), "A:0");
  EXPECT_EQ(shown(made(bytes).pair), "A:0 B:1");
  const TextTemplate one = made(fmt::format(R"({{"type":"Sequence","processors":[{},{}]}})", bytes, kTemplate));
  EXPECT_EQ(shown(one.single), "1:0 A:0");
  EXPECT_EQ(shown(one.pair), "A:0 2:0 3:0 B:1");
  const TextTemplate before = made(fmt::format(R"({{"type":"Sequence","processors":[{},{}]}})", kTemplate, bytes));
  EXPECT_EQ(shown(before.single), "1:0 A:0");
  EXPECT_EQ(shown(before.pair), "A:0 2:0 3:0 B:1");
  const TextTemplate two = made(fmt::format(R"({{"type":"Sequence","processors":[{0},{0}]}})", kTemplate));
  EXPECT_EQ(shown(two.single), "1:0 1:0 A:0");
  EXPECT_EQ(shown(two.pair), "") << "the library does not define it";
}

TEST(PostProcessor, ALaterTemplateGoesAroundAnEarlierOne) {
  const std::string bert = R"({"type":"BertProcessing","cls":["[CLS]",101],"sep":["[SEP]",102]})";
  const auto both = [](const std::string& first, const std::string& second) {
    return shown(made(fmt::format(R"({{"type":"Sequence","processors":[{},{}]}})", first, second)).single);
  };
  EXPECT_EQ(both(kTemplate, bert), "101:0 1:0 A:0 102:0");
  EXPECT_EQ(both(bert, kTemplate), "1:0 101:0 A:0 102:0");
}

TEST(PostProcessor, NamesUnsupportedPostProcessors) {
  EXPECT_FAILURE(made(R"({"type":"Other"})"), Exit::usage, HasSubstr("the post-processor Other is not supported"));
  EXPECT_FAILURE(made(R"({"type":"BertProcessing","cls":["[CLS]"],"sep":["[SEP]",102]})"), Exit::corrupt,
                 HasSubstr("a token and its id"));
  EXPECT_FAILURE(made(R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})"), Exit::corrupt,
                 HasSubstr("the sequence A"));
}

}  // namespace
}  // namespace strata::text
