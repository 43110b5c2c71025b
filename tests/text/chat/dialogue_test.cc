#include "text/chat/dialogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kDialogueGolden = (tests::source_dir() / "tests/golden/").string();

class DialogueTest : public testing::Test {
 protected:
  Dialogue dialogue(const std::string& source) {
    folder_.write("t.jinja", source);
    return {*ChatTemplate::find("byte", folder_.path() / "t.jinja", *tokenizer_), *tokenizer_};
  }
  std::string prompt(const Dialogue& made) const { return tokenizer_->decode(made.prompt(), false); }

  tests::ScratchFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(kDialogueGolden + "tokenizers/smollm");
  const std::string chatml_ =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
};

TEST_F(DialogueTest, ContinuesTurnByTurn) {
  Dialogue made = dialogue(chatml_);
  made.ask("Hi");
  EXPECT_EQ(prompt(made), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  made.answered("Hello");
  made.ask("Bye");
  EXPECT_EQ(prompt(made),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(made.prompt().front(), 1u);  // <|im_start|> is its token
}

TEST_F(DialogueTest, TheTemplateDeterminesTheEndOfAnAnswer) {
  Dialogue made = dialogue(chatml_);
  made.ask("Hi");
  EXPECT_THAT(made.turn_ends(), ElementsAre(2u));  // <|im_end|>
  EXPECT_THAT(dialogue("{% for m in messages %}{{ m.content }}\n~{% endfor %}").turn_ends(),
              ElementsAre(*tokenizer_->id_of("~")));
  EXPECT_THAT(dialogue("{% for m in messages %}{{ m.content }}\n\nUser: {% endfor %}").turn_ends(), IsEmpty());
  // This is also true before the first turn, if an assistant may not begin.
  EXPECT_THAT(
      dialogue("{% if messages[0].role != 'user' %}{{ raise_exception('roles') }}{% endif %}" + chatml_).turn_ends(),
      ElementsAre(2u));
  EXPECT_THAT(dialogue("{{ raise_exception('no') }}").turn_ends(), IsEmpty());
}

TEST_F(DialogueTest, ReadsMessagesFromAFile) {
  Dialogue made = dialogue(chatml_);
  made.read(R"([{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}])", "f");
  EXPECT_THAT(prompt(made), testing::StartsWith("<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\n"));
  made.read(R"({"messages": [{"role": "user", "content": "Ho"}]})", "f");
  EXPECT_THAT(prompt(made), testing::StartsWith("<|im_start|>user\nHo"));
  // The requested answer is left out.
  const std::string asked = "<|im_start|>user\nHo<|im_end|>\n<|im_start|>assistant\n";
  for (const char* json : {R"({"role": "user", "content": "Ho"})", R"({"prompt": "Ho"})",
                           R"({"prompt": [{"role": "user", "content": "Ho"}]})", R"({"instruction": "Ho"})",
                           R"({"instruction": "Ho", "input": ""})"}) {
    made.read(json, "f");
    EXPECT_EQ(prompt(made), asked) << json;
  }
  Dialogue tooled = dialogue("{{ tools[0].name }}" + chatml_);
  tooled.read(R"({"prompt": [{"role": "user", "content": "Ho"}], "tools": [{"name": "f"}]})", "f");
  EXPECT_EQ(prompt(tooled), "f" + asked);
  EXPECT_FAILURE(made.read(R"({"body": "Ho"})", "f"), Exit::corrupt,
                 AllOf(HasSubstr("the fields body"), testing::Not(HasSubstr("--field"))));
  EXPECT_FAILURE(made.read("[1", "f"), Exit::corrupt, AllOf(HasSubstr("f, offset 2"), HasSubstr("not JSON")));
  EXPECT_FAILURE(made.read("[]", "f"), Exit::corrupt, HasSubstr("no turn"));
  EXPECT_FAILURE(made.read("5", "f"), Exit::corrupt, HasSubstr("a list of messages"));
  EXPECT_FAILURE(made.read(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])", "f"),
                 Exit::usage, AllOf(HasSubstr("nothing to answer"), HasSubstr("leave that turn out")));
  const std::string line = R"({"messages": [{"role": "user", "content": "Ho"}]})";
  EXPECT_FAILURE(made.read(line + "\n\n" + line + "\n", "f"), Exit::usage,
                 AllOf(HasSubstr("f holds 2 records"), HasSubstr("give one line")));
  EXPECT_FAILURE(made.read("{\n]\n", "f"), Exit::corrupt, HasSubstr("not JSON"));
}

TEST_F(DialogueTest, ReportsTurnsThatAreNotWritten) {
  Dialogue made = dialogue("{% for m in messages if m.role == 'user' %}{{ m.content }}\n{% endfor %}");
  made.read(R"([{"role": "developer", "content": "d"}, {"role": "user", "content": "p"}])", "q.json");
  EXPECT_EQ(prompt(made), "p\n");
  EXPECT_THAT(made.notes(),
              ElementsAre(AllOf(HasSubstr("q.json: roles whose turns"), HasSubstr("developer (1 turn)"))));
  EXPECT_FAILURE(made.read(R"([{"role": "user", "content": [{"type": "text", "text": "p"}]}])", "q.json"),
                 Exit::corrupt, HasSubstr("q.json: the content of turn 1 is a list of parts"));
}

}  // namespace
}  // namespace strata::text
