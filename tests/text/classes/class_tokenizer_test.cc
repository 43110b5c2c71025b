#include "text/classes/class_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
#include "text/chat/record.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

using jinja::Kind;
using jinja::Value;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kTokenizers = tests::source_dir() / "tests/golden/tokenizers";

std::vector<std::uint32_t> numbers(const Value& list) {
  std::vector<std::uint32_t> out;
  for (const Value& item : list.items()) out.push_back(static_cast<std::uint32_t>(item.integer()));
  return out;
}

// The tokenizer of a golden folder, with the given `truncation_side`.
std::unique_ptr<Tokenizer> tokenizer_of(const std::string& name, const std::string& side) {
  const tests::ScratchFolder folder;
  std::filesystem::copy(kTokenizers / name / "tokenizer.json", folder.path() / "tokenizer.json");
  folder.write("tokenizer_config.json", "{\"truncation_side\": \"" + side + "\"}");
  return load_tokenizer(folder.path());
}

// Values made by the tokenizers library (tests/golden/make_pairs.py).
TEST(ClassTokenizerTest, MatchesTheLibrarysPairsTruncationAndWords) {
  std::ifstream file(kTokenizers / "pairs.json");
  const Value all = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::size_t refused = 0;
  for (const Value& golden : all.items()) {
    const std::string name = golden.find("tokenizer")->text(), side = golden.find("side")->text();
    auto& tokenizer = tokenizers[name + side];
    if (!tokenizer) tokenizer = tokenizer_of(name, side);
    SCOPED_TRACE(name + " " + side + " " + golden.find("strategy")->text() + " " +
                 golden.find("max_length")->to_text());
    ClassRules rules;
    const Value *words = golden.find("words"), *pair = golden.find("pair");
    if (words) rules.record.text = "words";
    if (pair) rules.record.pair = "pair";
    rules.truncation = *truncation(golden.find("strategy")->text());
    if (const Value& longest = *golden.find("max_length"); !longest.is(Kind::none))
      rules.max_length = static_cast<std::size_t>(longest.integer());
    ClassRecord record = class_record(golden, rules.record);
    for (std::size_t i = 0; words && i < record.words.size(); ++i) record.labels.values.emplace_back(std::int64_t(i));
    ClassTokenizer made(*tokenizer, rules);
    ClassTokens out;
    if (golden.find("ids")->is(Kind::none)) {
      EXPECT_THROW(made.add(record, out), RecordFault);
      ++refused;
      continue;
    }
    made.add(record, out);
    EXPECT_EQ(out.ids, numbers(*golden.find("ids")));
    EXPECT_EQ(std::vector<std::uint32_t>(out.types.begin(), out.types.end()), numbers(*golden.find("types")));
    if (!words) continue;
    // The first token of each word has its label.
    const auto& word_ids = golden.find("word_ids")->items();
    ASSERT_EQ(out.labels[0].values.size(), word_ids.size());
    for (std::size_t i = 0; i < word_ids.size(); ++i) {
      const bool counts = !word_ids[i].is(Kind::none) && (i == 0 || word_ids[i - 1].is(Kind::none) ||
                                                          word_ids[i - 1].integer() != word_ids[i].integer());
      const bool cut_inside = side == "left" && i == 1;  // this may be the rest of a word
      if (cut_inside) continue;
      EXPECT_EQ(out.labels[0].values[i].has_value(), counts) << i;
      if (counts) {
        EXPECT_EQ(text_of(*out.labels[0].values[i]), word_ids[i].to_text());
      }
    }
  }
  EXPECT_EQ(refused, 98u);
}

// As with transformers' is_split_into_words, a word is a separate text with the space that add_prefix_space adds.
TEST(ClassTokenizerTest, AddPrefixSpaceAppliesToWords) {
  const tests::ScratchFolder folder;
  std::filesystem::copy(kTokenizers / "gpt2" / "tokenizer.json", folder.path() / "tokenizer.json");
  const std::string record = R"({"words": ["the", "waters", "in"], "tags": [0, 1, 2]})";
  const auto words = [&](const std::string& setting) {
    folder.write("tokenizer_config.json",
                 R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": )" + setting + "}");
    const auto tokenizer = load_tokenizer(folder.path());
    const ClassRules rules{.record = {.labels = {"tags"}, .text = "words"}};
    ClassTokenizer made(*tokenizer, rules);
    ClassTokens out;
    made.add(class_record(parse_json(record), rules.record), out);
    return out.ids;
  };
  const auto plain = load_tokenizer(kTokenizers / "gpt2");
  const auto wanted = [&](const char* space) {
    std::vector<std::uint32_t> out;
    for (const char* word : {"the", "waters", "in"})
      for (const std::uint32_t id : plain->encode(std::string(space) + word)) out.push_back(id);
    return out;
  };
  ASSERT_NE(wanted(""), wanted(" "));
  EXPECT_EQ(words("false"), wanted(""));
  EXPECT_EQ(words("true"), wanted(" "));
}

TEST(ClassTokenizerTest, ReadsPartsOfTables) {
  const auto tokenizer = load_tokenizer("byte");
  const ClassRules rules{.record = {.labels = {"label"}}, .max_length = 4};
  ClassTokenizer made(*tokenizer, rules);
  ClassTokens out;
  DocumentPart part{.name = "a.csv", .kind = InputKind::comma_table, .header = "text,label\n", .line = 2};
  part.text = "abc,x\n\"de,fgh\",y\n";
  made.run(part, out);
  EXPECT_THAT(out.ids, ElementsAre('a', 'b', 'c', 'd', 'e', ',', 'f'));
  EXPECT_THAT(out.begins, ElementsAre(0u, 3u));
  EXPECT_EQ(text_of(*out.labels[1].values[0]), "y");
  EXPECT_EQ(out.cut, 1u);
  part.text = "abc,x\n,y\n";
  EXPECT_FAILURE(made.run(part, out), Exit::corrupt, HasSubstr("a.csv, line 3, offset 6: the text has no tokens"));
  part.header = "text,class\n";
  EXPECT_FAILURE(made.run(part, out), Exit::usage, HasSubstr("there is no field \"label\" (--labels)"));
  part.header = "text,text\n";
  EXPECT_FAILURE(made.run(part, out), Exit::corrupt, HasSubstr("line 1: the header names \"text\" twice"));
}

// transformers gives "" the template alone. Without a template there is nothing to write.
TEST(ClassTokenizerTest, AnEmptyTextBecomesItsTemplate) {
  const auto bert = load_tokenizer(kTokenizers / "bert_cased"), byte = load_tokenizer("byte");
  const auto ids = [](const Tokenizer& tokenizer, const ClassRules& rules, ClassRecord record) {
    ClassTokens out;
    ClassTokenizer(tokenizer, rules).add(record, out);
    return out.ids;
  };
  const std::uint32_t cls = bert->id_of("[CLS]").value(), sep = bert->id_of("[SEP]").value();
  EXPECT_THAT(ids(*bert, {.takes_empty = true}, {.text = ""}), ElementsAre(cls, sep));
  EXPECT_THAT(ids(*bert, {.record = {.pair = "b"}, .takes_empty = true}, {.text = "", .has_pair = true}),
              ElementsAre(cls, sep, sep));
  EXPECT_THAT(ids(*bert, {.takes_empty = true}, {.has_words = true}), ElementsAre(cls, sep));
  EXPECT_THROW(ids(*bert, {}, {.text = ""}), RecordFault);
  EXPECT_THROW(ids(*byte, {.takes_empty = true}, {.text = ""}), RecordFault);
}

// A tokenizer of the words a, b and c with this post-processor.
std::unique_ptr<Tokenizer> words_with(const std::string& post_processor) {
  const tests::ScratchFolder folder;
  folder.write("tokenizer.json",
               R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, )"
               R"("c": 2}, "unk_token": "c"}, "added_tokens": [], "post_processor": )" +
                   post_processor + "}");
  return load_tokenizer(folder.path());
}

// Values made by the tokenizers library: encode("a", "b b") of such a tokenizer.
TEST(ClassTokenizerTest, WithoutATemplateASecondTextFollowsTheFirst) {
  for (const char* post_processor :
       {"null", R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})"}) {
    const auto tokenizer = words_with(post_processor);
    const ClassRules rules{.record = {.pair = "pair"}, .max_length = 3};
    ClassTokenizer made(*tokenizer, rules);
    ClassTokens out;
    made.add(class_record(parse_json(R"({"text": "a", "pair": "b b"})"), rules.record), out);
    EXPECT_THAT(out.ids, ElementsAre(0u, 1u, 1u)) << post_processor;
    EXPECT_THAT(out.types, ElementsAre(0, 1, 1)) << post_processor;
    EXPECT_EQ(out.cut, 0u);
  }
}

TEST(ClassTokenizerTest, RefusesWhatTheTokenizerDoesNotSupport) {
  const auto make = [&](const Tokenizer& with, const ClassRules& rules) { ClassTokenizer made(with, rules); };
  const auto single =
      words_with(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "c", "type_id": 0}}, )"
                 R"({"Sequence": {"id": "A", "type_id": 0}}], "pair": [], )"
                 R"("special_tokens": {"c": {"id": "c", "ids": [2], "tokens": ["c"]}}})");
  EXPECT_FAILURE(make(*single, {.record = {.pair = "b"}}), Exit::usage, HasSubstr("no template for two texts"));
  EXPECT_FAILURE(make(*load_tokenizer(kTokenizers / "bert_cased"), {.record = {.pair = "b"}, .max_length = 3}),
                 Exit::usage, HasSubstr("adds 3 tokens of its own"));
}

}  // namespace
}  // namespace strata::text
