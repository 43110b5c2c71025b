#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "launcher/commands/commands.h"
#include "launcher/inspect/inspect.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kSmollm = (tests::source_dir() / "tests/golden/tokenizers/smollm").string();

class ShowDocumentsTest : public testing::Test {
 protected:
  void make(const std::string& tokenizer, const std::string& lines) {
    folder_.write("a.jsonl", lines);
    tokenize({.tokenizer = tokenizer,
              .out = folder_.path() / "a.bin",
              .inputs = {(folder_.path() / "a.jsonl").string()},
              .eot = tokenizer == "byte" ? std::optional<std::string>("$") : std::nullopt});
  }
  std::string shown(std::uint64_t number, std::optional<std::string> tokenizer = std::nullopt, bool colour = false) {
    std::ostringstream out;
    show_documents(folder_.path() / "a.bin", number, tokenizer, colour, out);
    return out.str();
  }
  tests::ScratchFolder folder_;
};

TEST_F(ShowDocumentsTest, ShowsLabelsInBracketsOrInColour) {
  make("byte",
       "{\"prompt\": \"a\\n\\u001b[31m\", \"completion\": \"b\"}\n{\"prompt\": \"c\", \"completion\": \"d\"}\n");
  EXPECT_EQ(shown(1), "document 1 of 2: 9 tokens, 2 of them labels\na\n?[31m[b$]\n");
  EXPECT_EQ(shown(9),
            "document 1 of 2: 9 tokens, 2 of them labels\na\n?[31m[b$]\ndocument 2 of 2: 3 tokens, 2 of them "
            "labels\nc[d$]\n");
  EXPECT_THAT(shown(9, std::nullopt, true), HasSubstr("c\x1b[1;32md$\x1b[0m\n"));
}

TEST_F(ShowDocumentsTest, ShowsClassesNextToTheText) {
  folder_.write("c.jsonl", "{\"text\": \"p\", \"label\": \"good\"}\n{\"text\": \"q\", \"label\": \"bad\"}\n");
  TokenizeOptions options{.tokenizer = "byte", .out = folder_.path() / "a.bin"};
  options.inputs = {(folder_.path() / "c.jsonl").string()};
  options.labels = {"label"};
  tokenize(options);
  EXPECT_EQ(shown(2),
            "document 1 of 2: 1 token, \"label\": \"good\"\np\ndocument 2 of 2: 1 token, \"label\": \"bad\"\nq\n");
  folder_.write("a.bin.labels.jsonl", "{\"label\": \"good\"}\n");
  EXPECT_FAILURE(shown(2), Exit::corrupt, HasSubstr("a.bin.labels.jsonl has no line for each document"));
}

TEST_F(ShowDocumentsTest, NeedsTheTokenizerThatMadeTheFile) {
  make(kSmollm, "{\"prompt\": \"Who is it?\", \"completion\": \" Na\\u00efve \\ud83d\\ude00 one\"}\n");
  EXPECT_THAT(shown(1, kSmollm), HasSubstr("Who is it?[ Na\xc3\xafve \xf0\x9f\x98\x80 one<|endoftext|>]\n"));
  EXPECT_FAILURE(shown(1), Exit::usage, AllOf(HasSubstr("which is smollm"), HasSubstr("--tokenizer DIR")));
  EXPECT_FAILURE(shown(1, "byte"), Exit::usage, HasSubstr("made by another tokenizer"));
}

}  // namespace
}  // namespace strata::launcher
