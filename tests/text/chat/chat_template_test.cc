#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
#include "text/chat/record.h"
#include "text/json/json_value.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ChatTemplateTest : public testing::Test {
 protected:
  tests::ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("byte");
};

TEST_F(ChatTemplateTest, FindsATemplateLikeTransformers) {
  EXPECT_FALSE(ChatTemplate::find(folder_.path(), std::nullopt, *tokenizer_));
  const auto text = [&](std::string_view tools) {
    const auto found = ChatTemplate::find(folder_.path(), std::nullopt, *tokenizer_);
    const auto chat = conversation_of(
        parse_json(R"({"messages": [{"role": "user", "content": "p"}], "tools": )" + std::string(tools) + "}"),
        DataFormat::chat);
    return found->render(chat, 1, false).text;
  };
  folder_.write("tokenizer_config.json", R"({"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"},
                                             "eos_token": null, "model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(text("null"), "config <s>");
  folder_.write("tokenizer_config.json",
                R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(text("null"), "d");
  EXPECT_EQ(text("[{}]"), "t");
  folder_.write("chat_template.jinja", "file");
  EXPECT_EQ(text("null"), "file");
  folder_.write("chat_template.jinja", "{% if %}");
  EXPECT_FAILURE(text("null"), Exit::usage, HasSubstr("chat_template.jinja, line 1"));
  EXPECT_FAILURE(ChatTemplate::find("byte", folder_.path() / "none", *tokenizer_), Exit::usage,
                 AllOf(HasSubstr("neither such a file"), HasSubstr("byte has none; give a FILE")));
  // The names of other programs' templates are unknown. The error lists the existing ones.
  for (const char* name : {"chatml", "llama3"}) {
    folder_.write("chat_template.jinja", "file");
    EXPECT_FAILURE(ChatTemplate::find(folder_.path(), name, *tokenizer_), Exit::usage,
                   AllOf(HasSubstr(std::string("--chat-template ") + name), HasSubstr("is its only template")));
    folder_.write("additional_chat_templates/rag.jinja", "r");
    EXPECT_FAILURE(ChatTemplate::find(folder_.path(), name, *tokenizer_), Exit::usage, HasSubstr("has default, rag"));
    std::filesystem::remove_all(folder_.path() / "additional_chat_templates");
  }
}

// transformers' classes for such files know the token names, even if the configuration leaves them out.
TEST_F(ChatTemplateTest, SentencePieceNamesItsTokensItself) {
  std::filesystem::copy(tests::source_dir() / "tests/golden/tokenizers/sentencepiece/tokenizer.model",
                        folder_.path() / "tokenizer.model");
  const auto chat =
      conversation_of(parse_json(R"({"messages": [{"role": "user", "content": "p"}]})"), DataFormat::chat);
  const auto text = [&](const std::string& config) {
    folder_.write("tokenizer_config.json", "{" + config + R"("chat_template":
        "{{ bos_token }}[{{ messages[0].content }}]{{ eos_token }}{{ unk_token }}"})");
    const auto tokenizer = load_tokenizer(folder_.path());
    return ChatTemplate::find(folder_.path(), std::nullopt, *tokenizer)->render(chat, 1, false).text;
  };
  EXPECT_EQ(text(""), "<s>[p]</s><unk>");
  EXPECT_EQ(text(R"("eos_token": "<unk>", "bos_token": null, )"), "[p]<unk><unk>");
  // A token that the configuration names is used, even if the model lacks it.
  EXPECT_EQ(text(R"("eos_token": "<|im_end|>", )"), "<s>[p]<|im_end|><unk>");
}

// In Zephyr's format "<|user|>" is plain text by design: TinyLlama's own folder has no such token.
TEST_F(ChatTemplateTest, MarksThatAreNotTokensStayText) {
  const auto smollm = load_tokenizer(tests::source_dir() / "tests/golden/tokenizers/smollm");
  const auto chat =
      conversation_of(parse_json(R"({"messages": [{"role": "user", "content": "p"}]})"), DataFormat::chat);
  const auto find = [&](const char* source) {
    folder_.write("t.jinja", source);
    return ChatTemplate::find(folder_.path(), folder_.path() / "t.jinja", *smollm);
  };
  EXPECT_THAT(find("<|im_start|>")->notes(), testing::IsEmpty());
  const auto made = find("<|user|><|im_start|><|user|><|assistant|>");
  EXPECT_EQ(made->render(chat, 1, false).text, "<|user|><|im_start|><|user|><|assistant|>");
  EXPECT_THAT(made->notes(), testing::ElementsAre(HasSubstr("writes <|user|>, <|assistant|>, which are not tokens")));
}

// It is a mistake if the folder's lists promise a token that the tokenizer lacks. transformers ignores the map if there
// is an added_tokens_decoder, so a token that only the map has is not a token.
TEST_F(ChatTemplateTest, RefusesAListedTokenThatIsMissing) {
  std::filesystem::copy(tests::source_dir() / "tests/golden/tokenizers/smollm/tokenizer.json",
                        folder_.path() / "tokenizer.json");
  const auto find = [&](const std::string& source) {
    folder_.write("chat_template.jinja", source);
    return ChatTemplate::find(folder_.path(), std::nullopt, *load_tokenizer(folder_.path()));
  };
  folder_.write("special_tokens_map.json", R"({"additional_special_tokens": ["<turn>"], "bos_token": "<|im_start|>"})");
  EXPECT_THAT(find("<turn>{{ bos_token }}")->notes(), testing::IsEmpty());
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_FAILURE(find("<turn>"), Exit::usage, AllOf(HasSubstr("writes <turn>"), HasSubstr("lists as a special token")));
  EXPECT_THAT(find("<|turn|>")->notes(), testing::ElementsAre(HasSubstr("writes <|turn|>, which is not a token")));
}

class NamedTemplatesTest : public testing::Test {
 protected:
  std::string text(std::optional<std::filesystem::path> wanted, bool tools = false) const {
    const auto chat = conversation_of(parse_json(std::string(R"({"messages": [{"role": "user", "content": "q"}])") +
                                                 (tools ? R"(, "tools": [{"name": "f"}]})" : "}")),
                                      DataFormat::chat);
    return ChatTemplate::find(folder_.path(), wanted, *tokenizer_)->render(chat, 1, false).text;
  }
  void write_more(const std::string& name, const std::string& source) const {
    std::filesystem::create_directories(folder_.path() / "additional_chat_templates");
    folder_.write("additional_chat_templates/" + name, source);
  }
  tests::ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("byte");
};

TEST_F(NamedTemplatesTest, FilesTakePrecedenceOverTheConfiguration) {
  folder_.write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "config"},
                                                             {"name": "tool_use", "template": "config tools"}]})");
  EXPECT_EQ(text({}), "config");
  EXPECT_EQ(text({}, true), "config tools");
  folder_.write("chat_template.jinja", "file");
  EXPECT_EQ(text({}), "file");
  EXPECT_EQ(text({}, true), "file");  // one file is the model's template, and the configuration's are gone
  write_more("tool_use.jinja", "tools");
  write_more("rag.jinja", "rag");
  write_more("notes.txt", "{% wrong");
  EXPECT_EQ(text({}), "file");
  EXPECT_EQ(text({}, true), "tools");
  EXPECT_EQ(text("rag"), "rag");
  EXPECT_EQ(text("rag", true), "rag");
  EXPECT_EQ(text("default", true), "file");
  EXPECT_FAILURE(text("tag"), Exit::usage,
                 AllOf(HasSubstr("--chat-template tag"), HasSubstr("default, rag, tool_use")));
  // If both a name and a file match, the name counts. A path with a slash is a file.
  folder_.write("other.jinja", "other");
  EXPECT_EQ(text(folder_.path() / "other.jinja"), "other");
}

TEST_F(NamedTemplatesTest, WithoutADefaultTheUserMustChoose) {
  folder_.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_FAILURE(text({}), Exit::usage, AllOf(HasSubstr("has rag"), HasSubstr("--chat-template NAME")));
  EXPECT_EQ(text("rag"), "r");
  folder_.write("tokenizer_config.json", R"({"chat_template": {"rag": "r", "tool_use": "t"}})");
  EXPECT_EQ(text({}, true), "t");
  EXPECT_FAILURE(text({}), Exit::usage, HasSubstr("none named default"));
  folder_.write("tokenizer_config.json", R"({"chat_template": []})");
  EXPECT_FAILURE(text({}), Exit::corrupt, HasSubstr("at least one template"));
}

}  // namespace
}  // namespace strata::text
