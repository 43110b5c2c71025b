#include "text/chat/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
#include "text/json/json_value.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kMarked =
    "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}\n"
    "{% endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";
constexpr const char* kPlain =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";

class LabelsTest : public testing::Test {
 protected:
  ChatTemplate made(const std::string& source) {
    folder_.write("t.jinja", source);
    return *ChatTemplate::find("byte", folder_.path() / "t.jinja", *tokenizer_);
  }
  // In these texts, labelled parts are in brackets.
  std::string shown(const std::string& source, std::string_view json, TrainOn on = TrainOn::assistant) {
    return bracketed(labelled_text(made(source), conversation_of(parse_json(json), DataFormat::chat), on));
  }
  static std::string bracketed(const LabelledText& out) {
    std::string text = out.text;
    for (auto it = out.labels.rbegin(); it != out.labels.rend(); ++it) text.insert(it->end, "]").insert(it->begin, "[");
    return text;
  }
  std::string fault(const std::string& source, std::string_view json, TrainOn on = TrainOn::assistant) {
    try {
      return "no fault: " + shown(source, json, on);
    } catch (const RecordFault& found) {
      return found.message;
    }
  }
  tests::ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("byte");
};

constexpr const char* kTwo =
    R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "s"}]})";

TEST_F(LabelsTest, MarksOfTheTemplateCount) {
  EXPECT_EQ(shown(kMarked, kTwo), "user: p\nassistant: [q\n]user: r\nassistant: [s\n]");
  EXPECT_EQ(shown(kMarked, kTwo, TrainOn::last), "user: p\nassistant: q\nuser: r\nassistant: [s\n]");
  EXPECT_EQ(shown(kMarked, kTwo, TrainOn::completion), shown(kMarked, kTwo, TrainOn::last));
  EXPECT_EQ(shown(kMarked, kTwo, TrainOn::all), "[user: p\nassistant: q\nuser: r\nassistant: s\n]");
}

TEST_F(LabelsTest, WithoutMarksThePrefixesCount) {
  EXPECT_EQ(shown(kPlain, kTwo), "user: p\n\nassistant: [q\n\n]user: r\n\nassistant: [s\n\n]");
  EXPECT_EQ(shown(kPlain, kTwo, TrainOn::last), "user: p\n\nassistant: q\n\nuser: r\n\nassistant: [s\n\n]");
  // The prompt is not a prefix of the whole text. Then the turn begins after the earlier turns.
  EXPECT_EQ(
      shown("{% for m in messages %}<{{ m.content }}>{% endfor %}{% if add_generation_prompt %}think{% endif %}", kTwo),
      "<p>[<q>]<r>[<s>]");
}

TEST_F(LabelsTest, ATurnMayOverrideTheMask) {
  constexpr const char* kFlags =
      R"({"messages": [{"role": "user", "content": "p", "train": true}, {"role": "assistant", "content": "q", "weight": 0},
          {"role": "user", "content": "r"}, {"role": "assistant", "content": "s"}]})";
  EXPECT_EQ(shown(kMarked, kFlags), "[user: p\n]assistant: q\nuser: r\nassistant: [s\n]");
  EXPECT_EQ(shown(kPlain, kFlags), "[user: p\n\n]assistant: q\n\nuser: r\n\nassistant: [s\n\n]");
  EXPECT_EQ(shown(kPlain, kFlags, TrainOn::all), "[user: p\n\nassistant: ]q\n\n[user: r\n\nassistant: s\n\n]");
  EXPECT_EQ(shown(kMarked, R"({"prompt": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
                               "completion": [{"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"}]})",
                  TrainOn::completion),
            "assistant: a\nuser: b\nassistant: [c\n]assistant: [d\n]");
}

// With two marks per turn, the rendering without the last turn shows which marks belong to that turn.
TEST_F(LabelsTest, ATurnMayHaveSeveralMarks) {
  constexpr const char* kTwice =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}({{ m.content }}{% endgeneration %}-"
      "{% generation %}{{ m.content }}){% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(shown(kTwice, kTwo), "p[(q]-[q)]r[(s]-[s)]");
  EXPECT_EQ(shown(kTwice, kTwo, TrainOn::last), "p(q-q)r[(s]-[s)]");
}

// Qwen3's templates write a thought only in the last turn. The end of an earlier turn follows from what comes after its
// text.
TEST_F(LabelsTest, FindsATurnThatIsWrittenDifferentlyWhenLast) {
  constexpr const char* kForgets =
      "{% for m in messages %}{{ m.role }}: {% if loop.last %}(thinks) {% endif %}{{ m.content }};\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  EXPECT_EQ(shown(kForgets, kTwo), "user: p;\nassistant: [q;\n]user: r;\nassistant: [(thinks) s;\n]");
  EXPECT_EQ(shown(kForgets, kTwo, TrainOn::last), "user: p;\nassistant: q;\nuser: r;\nassistant: [(thinks) s;\n]");
  const auto written_differently = [&](TrainOn on) {
    return labelled_text(made(kForgets), conversation_of(parse_json(kTwo), DataFormat::chat), on).written_differently;
  };
  EXPECT_EQ(written_differently(TrainOn::assistant), 1u);
  EXPECT_EQ(written_differently(TrainOn::last), 0u);
  // Calls follow the text, and belong to the turn.
  EXPECT_EQ(shown("{% for m in messages %}{{ m.role }}: {% if loop.last %}(thinks) {% endif %}{{ m.content }}"
                  "{{ m.calls }};\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
                  R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "calls": "f[]"
},
                      {"role": "tool", "content": "r"}, {"role": "assistant", "content": "s"}]
})"),
            "user: p;\nassistant: [f[];\n]tool: r;\nassistant: [(thinks) s;\n]");
}

// Qwen3.5's templates put line breaks between a text and calls, so the replacement text that locates the end adds them.
TEST_F(LabelsTest, LineBreaksBeforeCallsDoNotHideTheEnd) {
  EXPECT_EQ(
      shown("{% for m in messages %}{{ m.role }}: {% if loop.last %}{{ '(thinks)\\n\\n' }}{% endif %}{{ m.content }}"
            "{% if m.calls %}{% if m.content %}{{ '\\n\\n' }}{% endif %}{{ m.calls }}{% endif %};\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}",
            R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "", "calls": "f[]"},
                      {"role": "tool", "content": "r"}, {"role": "assistant", "content": "s"}]})"),
      "user: p;\nassistant: [f[];\n]tool: r;\nassistant: [(thinks)\n\ns;\n]");
}

// Hermes' templates close the results of tools only before another turn, so that the turns before an answer are not the
// beginning of the text.
TEST_F(LabelsTest, FindsAnAnswerAfterATurnClosedByTheNextOne) {
  constexpr const char* kCloses =
      "{% for m in messages %}{{ m.role }}: {{ m.content }};{% if m.role != 'tool' or not loop.last %} end\n{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
  constexpr const char* kTool =
      R"({"messages": [{"role": "assistant", "content": "f"}, {"role": "tool", "content": "r"},
          {"role": "assistant", "content": "s"}]})";
  EXPECT_EQ(shown(kCloses, kTool), "assistant: [f; end\n]tool: r; end\nassistant: [s; end\n]");
}

// Phi-3's templates write the end-of-text token once, after all turns.
TEST_F(LabelsTest, AFinalEndOfTextTokenBelongsToTheLastTurn) {
  std::filesystem::copy(tests::source_dir() / "tests/golden/tokenizers/smollm/tokenizer.json",
                        folder_.path() / "tokenizer.json");
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "chat_template":
      "{% for m in messages %}{{ m.role }}: {{ m.content }};\n{% endfor %}{{ 'assistant: ' if add_generation_prompt else eos_token }}"})");
  const auto tokenizer = load_tokenizer(folder_.path());
  const auto out = labelled_text(*ChatTemplate::find(folder_.path(), std::nullopt, *tokenizer),
                                 conversation_of(parse_json(kTwo), DataFormat::chat), TrainOn::assistant);
  EXPECT_EQ(bracketed(out), "user: p;\nassistant: [q;\n]user: r;\nassistant: [s;\n<|im_end|>]");
  EXPECT_EQ(out.written_differently, 0u);
}

TEST_F(LabelsTest, TheFirstTurnMayBeAnAnswer) {
  EXPECT_EQ(shown("{% if messages[0].role != 'system' %}<{{ messages[0].role }}>{% endif %}{% for m in messages %}"
                  "{{ m.role }}: {{ m.content }};\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
                  R"({"messages": [{"role": "assistant", "content": "p"}, {"role": "user", "content": "q"},
                      {"role": "assistant", "content": "r"}]})"),
            "<assistant>assistant: [p;\n]user: q;\nassistant: [r;\n]");
}

// A prompt may begin a thought that templates omit in earlier answers. Such answers begin after the rest of the prompt.
TEST_F(LabelsTest, APromptThatBeginsAThoughtIsNotALabel) {
  constexpr const char* kThinks =
      "{% for m in messages %}{{ m.role }}: {% if loop.last %}<think></think>{% endif %}{{ m.content }};\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: <think>{% endif %}";
  EXPECT_EQ(shown(kThinks, kTwo), "user: p;\nassistant: [q;\n]user: r;\nassistant: <think>[</think>s;\n]");
  // Text with which the answer itself begins belongs to the answer.
  EXPECT_EQ(
      shown(kThinks, R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "<tool>"},
                               {"role": "user", "content": "r"}, {"role": "assistant", "content": "s"}]})"),
      "user: p;\nassistant: [<tool>;\n]user: r;\nassistant: <think>[</think>s;\n]");
  // Common white space alone is not a prompt.
  EXPECT_EQ(
      shown("{% for m in messages %}  {{ m.content }};{% endfor %}{% if add_generation_prompt %}  >{% endif %}", kTwo),
      "  p;[  q;]  r;[  s;]");
}

TEST_F(LabelsTest, ReportsTemplatesThatDoNotEndAnAnswer) {
  const auto open = [&](const char* source, TrainOn on = TrainOn::assistant) {
    return labelled_text(made(source), conversation_of(parse_json(kTwo), DataFormat::chat), on).open_end;
  };
  constexpr const char* kBetween =
      "{% for m in messages %}{{ m.content }}{% if not loop.last %};{% endif %}{% endfor %}";
  EXPECT_TRUE(open(kBetween));
  EXPECT_TRUE(open(kBetween, TrainOn::all));
  EXPECT_FALSE(open("{% for m in messages %}{{ m.content }};{% endfor %}"));
}

TEST_F(LabelsTest, RefusesInconsistentRenderings) {
  // The text after a turn depends on the next turn.
  constexpr const char* kDepends =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ 'the end' if loop.last else '-' }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  EXPECT_THAT(fault(kDepends, kTwo), AllOf(HasSubstr("turn 2 cannot be located"), HasSubstr("--train-on last")));
  EXPECT_THAT(fault("{% for m in messages %}{{ m.content }}{% if false %}{% generation %}{% endgeneration %}{% endif %}"
                    "{% endfor %}",
                    kTwo),
              HasSubstr("marks none of its answers"));
  EXPECT_FAILURE(shown("{{ raise_exception('Roles must alternate') }}", kTwo), Exit::usage,
                 AllOf(HasSubstr("t.jinja, line 1"), HasSubstr("Roles must alternate")));
  EXPECT_EQ(shown(kMarked, R"({"messages": [{"role": "user", "content": "p"}]})"), "user: p\n");
}

TEST_F(LabelsTest, FindsATemplateLikeTransformers) {
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
                 AllOf(HasSubstr("no such file"), HasSubstr("byte has none; give a FILE")));
  // The names of other programs' templates are unknown. The error lists the existing ones.
  for (const char* name : {"chatml", "llama3"}) {
    folder_.write("chat_template.jinja", "file");
    EXPECT_FAILURE(ChatTemplate::find(folder_.path(), name, *tokenizer_), Exit::usage,
                   AllOf(HasSubstr(std::string("--chat-template ") + name), HasSubstr("is its only one")));
    folder_.write("additional_chat_templates/rag.jinja", "r");
    EXPECT_FAILURE(ChatTemplate::find(folder_.path(), name, *tokenizer_), Exit::usage, HasSubstr("has default, rag"));
    std::filesystem::remove_all(folder_.path() / "additional_chat_templates");
  }
}

// transformers' classes for such files know the token names, even if the configuration leaves them out.
TEST_F(LabelsTest, SentencePieceNamesItsTokensItself) {
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
TEST_F(LabelsTest, MarksThatAreNotTokensStayText) {
  const auto smollm = load_tokenizer(tests::source_dir() / "tests/golden/tokenizers/smollm");
  const auto chat = conversation_of(parse_json(kTwo), DataFormat::chat);
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
TEST_F(LabelsTest, RefusesAListedTokenThatIsMissing) {
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
