#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/tokens.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/generation/generator.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"
#include "tests/source_dir.h"
#include "text/chat/chat_template.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::filesystem::path kGolden = tests::source_dir() / "tests/golden";
constexpr const char* kChat =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// A model with a tokenizer, and token files whose sidecars name the template that wrote them.
class PromptsTest : public testing::Test {
 protected:
  PromptsTest() {
    run_.folder().write("model/config.json", R"({"model_type":"llama","hidden_size":16,"num_attention_heads":2,
      "num_key_value_heads":2,"intermediate_size":16,"num_hidden_layers":1,"max_position_embeddings":128,
      "vocab_size":1024,"eos_token_id":0,"tie_word_embeddings":true})");
    std::filesystem::copy(kGolden / "tokenizers/smollm/tokenizer.json", run_.folder().path() / "model/tokenizer.json");
    tokens("t.bin", "");
    tokens("v.bin", "");
  }
  std::string path(const std::string& name) const { return (run_.folder().path() / name).string(); }
  void tokens(const std::string& name, const std::string& chat_template_hash) const {
    run_.folder().write(name, std::string(120, '\1'));
    run_.folder().write(name + ".json", to_json({.vocab_size = 900,
                                                 .tokenizer = "made",
                                                 .count = 60,
                                                 .chat_template = "t.jinja",
                                                 .chat_template_hash = chat_template_hash}));
  }
  // Adds a template to the model's folder and returns its hash.
  std::string with_template() const {
    run_.folder().write("model/chat_template.jinja", kChat);
    const auto tokenizer = text::load_tokenizer(path("model"));
    return text::ChatTemplate::find(path("model"), std::nullopt, *tokenizer)->hash();
  }
  Prompts read(const std::string& name, const std::string& lines, int seq_len = 64) const {
    const Recipe recipe = load_recipe(
        std::nullopt,
        std::vector<std::string>{"model.path=" + path("model"), "model.init=random", "data.train=" + path("t.bin"),
                                 "data.validation=" + path("v.bin"), fmt::format("data.seq_len={}", seq_len),
                                 "training.max_steps=1", "evaluation.every=1",
                                 "evaluation.prompts=" + run_.folder().write(name, lines).string()});
    Prompts out;
    comm::run_threads(1, [&](comm::World& world) {
      out = read_prompts(make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1)), world);
    });
    return out;
  }
  static std::string text_of(const Prompts& prompts, std::size_t i) {
    return prompts.tokenizer->decode(prompts.all.at(i).tokens, false);
  }
  SavedRun run_;
};

TEST_F(PromptsTest, ContinuesLinesOfPlainText) {
  with_template();
  const Prompts prompts = read("p.txt", "God said\n\nLet there\r\n");
  ASSERT_EQ(prompts.all.size(), 2u);
  EXPECT_EQ(text_of(prompts, 0), "God said");
  EXPECT_EQ(text_of(prompts, 1), "Let there");
  EXPECT_THAT(prompts.all[0].ends, AllOf(Contains(0u), Not(Contains(2u))));
}

// Then <|im_end|>, token 2, ends an answer.
TEST_F(PromptsTest, ALineIsAUserTurnOfAConversation) {
  const std::string hash = with_template();
  for (const char* name : {"t.bin", "v.bin"}) {
    SCOPED_TRACE(name);
    tokens("t.bin", "");
    tokens("v.bin", "");
    tokens(name, hash);
    const Prompts prompts = read("p.txt", "{{ Hi }}\n");
    EXPECT_EQ(text_of(prompts, 0), "<|im_start|>user\n{{ Hi }}<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(prompts.all[0].text, "{{ Hi }}");
    EXPECT_THAT(prompts.all[0].ends, AllOf(Contains(0u), Contains(2u)));
  }
}

TEST_F(PromptsTest, ALineOfJsonlIsAConversation) {
  with_template();
  const std::string line = R"({"messages": [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]})";
  const Prompts prompts = read("p.jsonl", line + "\n");
  EXPECT_EQ(text_of(prompts, 0),
            "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompts.all[0].text, line);
  EXPECT_FAILURE(read("p.jsonl", line + "\nHi\n"), Exit::corrupt,
                 AllOf(HasSubstr("p.jsonl, line 2, offset 0"), HasSubstr("not JSON")));
}

TEST_F(PromptsTest, RefusesInvalidPrompts) {
  EXPECT_FAILURE(read("p.txt", "\n"), Exit::usage, HasSubstr("holds no prompt"));
  EXPECT_FAILURE(read("p.txt", "a b c d e f g\n", 3), Exit::usage,
                 AllOf(HasSubstr("line 1"), HasSubstr("data.seq_len = 3 leaves no room")));
  EXPECT_FAILURE(read("p.jsonl", "[]\n"), Exit::usage, AllOf(HasSubstr("p.jsonl"), HasSubstr("has no chat template")));
  tokens("t.bin", std::string(16, '1'));
  EXPECT_FAILURE(read("p.txt", "Hi\n"), Exit::usage,
                 AllOf(HasSubstr("t.bin was written by t.jinja"), HasSubstr("has no chat template")));
  with_template();
  EXPECT_FAILURE(read("p.txt", "Hi\n"), Exit::usage, HasSubstr("has another chat template"));
}

}  // namespace
}  // namespace strata::runtime
