#include "launcher/commands/tokenize/tokenize_labels.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/failure.h"
#include "tests/launcher/commands/tokenize/tokenize_case.h"
#include "text/tokenizer.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TokenizeLabelsTest : public TokenizeCase {};

TEST_F(TokenizeLabelsTest, WritesTheLabelsOfDocuments) {
  folder_.write("a.csv", "text,other,label\nHe said,She said,no\n\"Over, the\",hills,yes\n");
  TokenizeOptions options{.tokenizer = kTokenizers + "bert_cased",
                          .out = path("out.bin"),
                          .inputs = {path("a.csv")},
                          .labels = {"label"},
                          .pair = "other",
                          .threads = 2};
  EXPECT_EQ(tokenize(options), 0);
  const auto tokenizer = text::load_tokenizer(kTokenizers + "bert_cased");
  const runtime::TokenFile file(path("out.bin"), std::nullopt);
  EXPECT_EQ(begins().size(), 2u);
  EXPECT_EQ(folder_.read("out.bin.labels.jsonl"), "{\"label\": \"no\"}\n{\"label\": \"yes\"}\n");
  ASSERT_TRUE(file.sidecar()->labels);
  EXPECT_EQ(file.sidecar()->labels->problem, "single_label_classification");
  EXPECT_EQ(file.sidecar()->labels->names, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(file.sidecar()->labels->count, 2u);
  // Types: 1 after the first [SEP] of each document.
  ASSERT_TRUE(file.sidecar()->types);
  const std::string bits = folder_.read("out.bin.types");
  const auto tokens = tokens_of(path("out.bin"));
  ASSERT_EQ(bits.size(), (tokens.size() + 7) / 8);
  const auto separator = *tokenizer->id_of("[SEP]");
  std::uint64_t ones = 0;
  unsigned type = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i == begins()[1]) type = 0;
    const unsigned bit = static_cast<unsigned char>(bits[i / 8]) >> i % 8 & 1;
    EXPECT_EQ(bit, type) << i;
    ones += bit;
    if (tokens[i] == separator) type = 1;
  }
  EXPECT_EQ(file.sidecar()->types->count, ones);
  // Again without a pair: the file of types is removed.
  options.pair = std::nullopt;
  EXPECT_EQ(tokenize(options), 0);
  EXPECT_FALSE(std::filesystem::exists(path("out.bin.types")));
  // And without labels.
  options.labels = {};
  options.no_eot = true;
  EXPECT_EQ(tokenize(options), 0);
  EXPECT_FALSE(std::filesystem::exists(path("out.bin.labels.jsonl")));
}

TEST_F(TokenizeLabelsTest, RefusesOptionsThatDoNotApplyToLabels) {
  folder_.write("a.csv", "text,label\na,b\n");
  folder_.write("a.txt", "text");
  TokenizeOptions options{.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("a.txt")}, .labels = {"label"}};
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("is plain text, which has no labels"));
  options.inputs = {path("a.csv")};
  options.eot = "x";
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("--eot cannot be used with --labels"));
  options.eot = std::nullopt;
  options.truncation = "only_first";
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("--truncation cannot be used without --max-length"));
  options.truncation = "only_second";
  options.max_length = 5;
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("only_second is for pairs"));
  options.labels = {};
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("cannot be used without --labels"));
  const auto named = [&](std::vector<std::string> labels, std::optional<std::string> pair) {
    return tokenize({.tokenizer = "byte",
                     .out = path("out.bin"),
                     .inputs = {path("a.csv")},
                     .labels = std::move(labels),
                     .pair = std::move(pair)});
  };
  EXPECT_FAILURE(named({"text"}, std::nullopt), Exit::usage, HasSubstr("--labels text names the field of a text"));
  EXPECT_FAILURE(named({"label"}, "label"), Exit::usage, HasSubstr("--labels label names the field of a text"));
  EXPECT_FAILURE(named({"label"}, "text"), Exit::usage, HasSubstr("--pair text names the first text"));
  EXPECT_FAILURE(named({"a", "b", "a"}, std::nullopt), Exit::usage, HasSubstr("--labels names a twice"));
  EXPECT_FAILURE(named({"class"}, std::nullopt), Exit::usage,
                 AllOf(HasSubstr("a.csv, line 2"), HasSubstr("no field \"class\"")));
  // This is also true without labels, because the header decides.
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = path("o.bin"), .inputs = {path("a.csv")}, .field = "body"}),
                 Exit::usage, HasSubstr("a.csv: there is no field \"body\" (--field); the fields are text, label"));
}

TEST_F(TokenizeLabelsTest, SummarisesTheLabels) {
  std::string table = "text,label\n";
  for (int i = 0; i < 120; ++i) table += fmt::format("a,{} {}\n", i, std::string(60, 'x'));
  folder_.write("a.csv", table);
  folder_.write("one.csv", "text,label\na,b\n");
  const auto said = [&](const std::string& name) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(tokenize({.tokenizer = "byte", .out = path(name + ".bin"), .inputs = {path(name)}, .labels = {"label"}}),
              0);
    return testing::internal::GetCapturedStderr();
  };
  const std::string many = said("a.csv");
  EXPECT_THAT(many, AllOf(HasSubstr("labels: 120 classes"), HasSubstr("120 documents have 120 different labels")));
  std::istringstream lines(many);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 500u) << line;
  std::string vectors;
  for (int i = 0; i < 20; ++i) {
    vectors += fmt::format("{{\"text\": \"x\", \"label\": [{}", i % 2);
    for (int c = 1; c < 120; ++c) vectors += fmt::format(", {}", (i + c) % 3 == 0 ? 1 : 0);
    vectors += "]}\n";
  }
  folder_.write("vectors.jsonl", vectors);
  EXPECT_THAT(said("vectors.jsonl"),
              AllOf(HasSubstr("labels: 120 classes"), testing::Not(HasSubstr("different labels"))));
  EXPECT_THAT(said("one.csv"), AllOf(HasSubstr("labels: 1 class ("), testing::Not(HasSubstr("different labels"))));
  // If the text is one string, tags of words are read as its classes. A note says so, because that may be a mistake.
  const std::string tagged = "{\"text\": \"Anna  sings\", \"label\": [\"B-PER\", \"O\"]}\n";
  folder_.write("tags.jsonl", tagged + tagged);
  EXPECT_THAT(said("tags.jsonl"), HasSubstr("each list has as many entries as its text has words"));
  folder_.write("tags.jsonl", tagged + "{\"text\": \"Anna\", \"label\": [\"B-PER\", \"O\"]}\n");
  EXPECT_THAT(said("tags.jsonl"), testing::Not(HasSubstr("has words")));
}

}  // namespace
}  // namespace strata::launcher
