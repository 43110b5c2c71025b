#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "tests/source_dir.h"
#include "text/chat/labels.h"
#include "text/chat/record.h"
#include "text/json/json_value.h"
#include "text/template/template.h"
#include "text/template/values/json_text.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::TextSpan;
using jinja::Value;
const fs::path kTokenPlacesGolden = tests::source_dir() / "tests/golden";

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The IDs and masks are those of transformers' apply_chat_template (tests/golden/make_chats.py).
TEST(TokenPlacesTest, IdsAndMasksMatchTransformers) {
  std::vector<Value> chats;
  std::istringstream lines(read_text(kTokenPlacesGolden / "chat/conversations.jsonl"));
  for (std::string line; std::getline(lines, line);) chats.push_back(parse_json(line));
  std::size_t masked = 0;
  const Value all = parse_json(read_text(kTokenPlacesGolden / "chat/ids.json"));
  for (const Value& one : all.items()) {
    const std::string& name = one.find("tokenizer")->text();
    SCOPED_TRACE(name + ", conversation " + std::to_string(one.find("conversation")->integer()));
    const auto tokenizer = load_tokenizer(kTokenPlacesGolden / "tokenizers" / name);
    // The template's special tokens, because the folders have no tokenizer_config.json.
    std::string source = read_text(kTokenPlacesGolden / "chat" / one.find("template")->text());
    for (const auto& [key, token] : one.find("special")->pairs())
      source = "{%- set " + key.text() + " = " + jinja::json_text(token, {}) + " -%}" + source;
    const jinja::Template plain(source, "golden");
    const Conversation chat =
        conversation_of(chats[static_cast<std::size_t>(one.find("conversation")->integer())], DataFormat::chat);
    const auto rendered = plain.render(
        Value::dict({{Value(std::string("messages")), chat.messages}, {Value(std::string("tools")), chat.tools}}));
    const auto workspace = tokenizer->workspace();
    TokenPlaces places(*tokenizer, *workspace);
    const auto ids = tokenizer->encode(rendered.text);
    std::vector<std::uint32_t> wanted;
    for (const Value& id : one.find("ids")->items()) wanted.push_back(static_cast<std::uint32_t>(id.integer()));
    EXPECT_EQ(ids, wanted);
    std::vector<std::uint8_t> counts;
    ASSERT_TRUE(places.mark(rendered.text, ids, rendered.generated, counts));
    std::string mask;
    for (const std::uint8_t counts_one : counts) mask += counts_one ? '1' : '0';
    if (one.find("mask")->is(jinja::Kind::none)) continue;  // transformers loses the place: make_chats.py
    EXPECT_EQ(mask, one.find("mask")->text());
    if (mask.find('1') != std::string::npos) ++masked;
  }
  EXPECT_GT(masked, 20u);
}

// Compares with the definition for boundaries between words: the number of tokens of the text before the boundary.
TEST(TokenPlacesTest, EveryTokenizerLocatesAnAnswer) {
  const std::string text = "Question one\nAnswer: yes, it is naïve 日本.\nQuestion two\nAnswer: no.\n";
  const TextSpan answer{text.find("yes") - 1, text.find("Question two")};
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator(kTokenPlacesGolden / "tokenizers")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto tokenizer = load_tokenizer(entry.path());
    const auto workspace = tokenizer->workspace();
    TokenPlaces places(*tokenizer, *workspace);
    const auto ids = tokenizer->encode(text);
    std::vector<std::uint8_t> counts;
    if (!places.mark(text, ids, {{answer}}, counts)) continue;
    ++found;
    std::vector<std::uint32_t> inside;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (counts[i]) inside.push_back(ids[i]);
    const std::string said = tokenizer->decode(inside);
    EXPECT_THAT(said, testing::HasSubstr("it is na"));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr("uestion")));
    EXPECT_THAT(said, testing::Not(testing::HasSubstr("nswer")));
  }
  EXPECT_GE(found, 20u);
}

}  // namespace
}  // namespace strata::text
