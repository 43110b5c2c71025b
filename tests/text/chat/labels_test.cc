#include "text/chat/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
#include "text/chat/record.h"
#include "text/json/json_value.h"
#include "text/template/template.h"
#include "text/template/values/json_text.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::TextSpan;
using jinja::Value;
using testing::AllOf;
using testing::HasSubstr;

const fs::path kGoldenOfLabels = tests::source_dir() / "tests/golden";

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

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The IDs and masks are those of transformers' apply_chat_template (tests/golden/make_chats.py).
TEST(TokenAlignerTest, IdsAndMasksMatchTransformers) {
  std::vector<Value> chats;
  std::istringstream lines(read_text(kGoldenOfLabels / "chat/conversations.jsonl"));
  for (std::string line; std::getline(lines, line);) chats.push_back(parse_json(line));
  std::size_t masked = 0;
  const Value all = parse_json(read_text(kGoldenOfLabels / "chat/ids.json"));
  for (const Value& one : all.items()) {
    const std::string& name = one.find("tokenizer")->text();
    SCOPED_TRACE(name + ", conversation " + std::to_string(one.find("conversation")->integer()));
    const auto tokenizer = load_tokenizer(kGoldenOfLabels / "tokenizers" / name);
    // The template's special tokens, because the folders have no tokenizer_config.json.
    std::string source = read_text(kGoldenOfLabels / "chat" / one.find("template")->text());
    for (const auto& [key, token] : one.find("special")->pairs())
      source = "{%- set " + key.text() + " = " + jinja::json_text(token, {}) + " -%}" + source;
    const jinja::Template plain(source, "golden");
    const Conversation chat =
        conversation_of(chats[static_cast<std::size_t>(one.find("conversation")->integer())], DataFormat::chat);
    const auto rendered = plain.render(
        Value::dict({{Value(std::string("messages")), chat.messages}, {Value(std::string("tools")), chat.tools}}));
    const auto workspace = tokenizer->workspace();
    TokenAligner places(*tokenizer, *workspace);
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
TEST(TokenAlignerTest, EveryTokenizerLocatesAnAnswer) {
  const std::string text = "Question one\nAnswer: yes, it is naïve 日本.\nQuestion two\nAnswer: no.\n";
  const TextSpan answer{text.find("yes") - 1, text.find("Question two")};
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator(kGoldenOfLabels / "tokenizers")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto tokenizer = load_tokenizer(entry.path());
    const auto workspace = tokenizer->workspace();
    TokenAligner places(*tokenizer, *workspace);
    const auto ids = tokenizer->encode(text);
    std::vector<std::uint8_t> counts;
    if (!places.mark(text, ids, {{answer}}, counts)) continue;
    ++found;
    std::vector<std::uint32_t> inside;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (counts[i]) inside.push_back(ids[i]);
    const std::string said = tokenizer->decode(inside);
    EXPECT_THAT(said, HasSubstr("it is na"));
    EXPECT_THAT(said, testing::Not(HasSubstr("uestion")));
    EXPECT_THAT(said, testing::Not(HasSubstr("nswer")));
  }
  EXPECT_GE(found, 20u);
}

}  // namespace
}  // namespace strata::text
