#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/token_output.h"
#include "tests/failure.h"
#include "tests/launcher/commands/tokenize/tokenize_case.h"
#include "text/tokenizer.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TokenizeTest : public TokenizeCase {};

TEST_F(TokenizeTest, ConcatenatesTheBytesOfAllInputs) {
  std::string large;  // read in several pieces
  for (int i = 0; i < 1'000'003; ++i) large += static_cast<char>(1 + i * 31 % 255);
  folder_.write("a.txt", "first\n");
  folder_.write("b.txt", large);
  folder_.write("empty.txt", "");
  EXPECT_EQ(run({"a.txt", "empty.txt", "b.txt"}), 0);
  EXPECT_EQ(text(), "first\n" + large);
  const auto sidecar = runtime::read_sidecar(path("out.bin"));
  ASSERT_TRUE(sidecar.has_value());
  EXPECT_EQ(sidecar->vocab_size, 256);
  EXPECT_EQ(sidecar->width, 2);
  EXPECT_EQ(sidecar->tokenizer, "byte");
  EXPECT_EQ(sidecar->count, large.size() + 6);
  EXPECT_EQ(files(), 6u);  // and no temporary one
}

TEST_F(TokenizeTest, ReadsTheTextOfEachJsonLine) {
  const std::string long_text(600'000, 'x');  // a line that is read in several pieces
  folder_.write("a.jsonl", "{\"text\":\"a\\u00e9\\n\",\"id\":1}\n\n  \r\n{\"text\":\"" + long_text + "\"}");
  run({"a.jsonl"});
  EXPECT_EQ(text(), "a\xc3\xa9\n" + long_text);
  folder_.write("bad.jsonl", "{\"text\":\"a\"}\n{\"txt\":1}\n");
  EXPECT_FAILURE(run({"bad.jsonl"}), Exit::corrupt,
                 AllOf(HasSubstr("bad.jsonl, line 2, offset 13"), HasSubstr("\"text\"")));
  folder_.write("bad.jsonl", "{\"text\":");
  EXPECT_FAILURE(run({"bad.jsonl"}), Exit::corrupt,
                 AllOf(HasSubstr("bad.jsonl, line 1, column 9"), HasSubstr("found the end")));
}

TEST_F(TokenizeTest, AByteOrderMarkIsNotText) {
  folder_.write("a.jsonl", "\xef\xbb\xbf{\"text\":\"a\"}\n");
  run({"a.jsonl"});
  EXPECT_EQ(text(), "a");
  folder_.write("a.txt", std::string("\xef\xbb\xbf") + "a");
  run({"a.txt"});
  EXPECT_EQ(text(), "a");
  folder_.write("a.jsonl", "{\"text\":\"a\"}\n\xef\xbb\xbf{\"text\":\"a\"}\n");  // two concatenated files
  EXPECT_FAILURE(run({"a.jsonl"}), Exit::corrupt, AllOf(HasSubstr("line 2"), HasSubstr("byte order mark")));
  folder_.write("a.jsonl", std::string("\xff\xfe{\0\"\0", 6));
  EXPECT_FAILURE(run({"a.jsonl"}), Exit::corrupt, HasSubstr("this is not JSON"));
}

// Fields that are not read may hold any number.
TEST_F(TokenizeTest, UnreadFieldsMayHoldAnyNumber) {
  folder_.write("a.jsonl",
                "{\"text\":\"a\",\"id\":123456789012345678901234567890}\n"
                "{\"text\":\"b\",\"m\":{\"d\":[1e400,-9223372036854775809]}}\n{\"text\":\"c\",\"score\":NaN}\n");
  run({"a.jsonl"});
  EXPECT_EQ(text(), "abc");
  folder_.write("b.jsonl", "{\"text\":\"a\"}\n{\"text\":99999999999999999999}\n");
  EXPECT_FAILURE(run({"b.jsonl"}), Exit::corrupt,
                 AllOf(HasSubstr("line 2"), HasSubstr("the field \"text\" holds 99999999999999999999")));
  folder_.write("c.jsonl", "{\"text\":\"a\",\"y\":99999999999999999999}\n");
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("c.jsonl")}, .labels = {"y"}}),
                 Exit::corrupt, HasSubstr("the field \"y\" holds 99999999999999999999, which is out of range"));
  folder_.write("d.jsonl", "{\"text\":\"a\"}\n{\"text\":null}\n");
  EXPECT_FAILURE(run({"d.jsonl"}), Exit::corrupt, HasSubstr("found null"));
}

TEST_F(TokenizeTest, FileExtensionsIgnoreCaseAndHaveSynonyms) {
  for (const char* name : {"a.JSONL", "a.ndjson", "a.jsonlines", "a.Json", "a.json"}) {
    folder_.write(name, "{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
    run({name});
    EXPECT_EQ(text(), "ab") << name;
  }
  folder_.write("b.json", "[{\"text\":\"a\"}]\n");
  EXPECT_FAILURE(run({"b.json"}), Exit::usage, HasSubstr("jq -c '.[]'"));
  folder_.write("c.CSV", "text\nab\n");
  run({"c.CSV"});
  EXPECT_EQ(text(), "ab");
}

// jq -c '.[]' takes an object apart into its fields.
TEST_F(TokenizeTest, AJsonFileOfObjectsDoesNotGetTheAdviceForAList) {
  const auto refused = [&](const std::string& name, const std::string& content, const auto& what) {
    SCOPED_TRACE(content.substr(0, 60));
    folder_.write(name, content);
    EXPECT_FAILURE(run({name}), Exit::usage, AllOf(what, HasSubstr("--format text")));
  };
  const auto object =
      AllOf(HasSubstr("jq -c . " + path("a.json") + " > " + path("a.jsonl") + " "), Not(HasSubstr("list")));
  const std::string record = "{\"text\": \"" + std::string(5000, 'x') + "\"}\n";
  for (const std::string& content :
       {record + record, record, std::string("{\"text\": \"a\"}"), std::string("\n {\n\"text\": \"a\"\n}\n")})
    refused("a.json", content, object);
  refused("a.json", "\n [\n{\"text\": \"a\"}]", HasSubstr("jq -c '.[]' "));
  for (const char* content : {"text\n", "\n\n", "\"text\"\n"})
    refused("a.json", content, AllOf(HasSubstr(".jsonl"), Not(HasSubstr("jq"))));
  refused("a b.json", "{", HasSubstr("/a b.json' > '"));
}

TEST_F(TokenizeTest, TheTableFollowsTheSepLine) {
  folder_.write("a.csv", "sep=;\r\nid;text\r\n1;\"a;b\"\r\n2;c,d\r\n");
  run({"a.csv"});
  EXPECT_EQ(text(), "a;bc,d");
  folder_.write("b.csv", "sep=,\ntext,n\na\n");
  EXPECT_FAILURE(run({"b.csv"}), Exit::corrupt, HasSubstr("b.csv, line 3, offset 13: expected 2 fields"));
}

// Bytes that no text contains are refused before the first input is tokenized.
TEST_F(TokenizeTest, RefusesOtherFilesByTheirKind) {
  folder_.write("good.txt", "a");
  folder_.write("x.txt", "PK\x03\x04 [Content_Types].xml xl/workbook.xml");
  EXPECT_FAILURE(run({"good.txt", "x.txt"}), Exit::usage,
                 AllOf(HasSubstr("x.txt is an Excel workbook"), HasSubstr("read_excel")));
  folder_.write("zeros.txt", std::string("ab\0cd", 5));
  EXPECT_FAILURE(run({"zeros.txt"}), Exit::usage, AllOf(HasSubstr("zeros.txt, offset 2"), HasSubstr("NUL")));
  folder_.write("a.gz", "text\n");
  EXPECT_FAILURE(run({"a.gz"}), Exit::corrupt, HasSubstr("is not gzip data, although its name suggests it"));
  EXPECT_FALSE(std::filesystem::exists(path("out.bin")));
}

TEST_F(TokenizeTest, CountsBytesThatAreNotUtf8) {
  const std::string one = std::string(400, 'a') + "\xe9";
  folder_.write("few.txt", one);
  testing::internal::CaptureStderr();
  run({"few.txt"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 of 401 bytes is not UTF-8, and byte takes them"));
  folder_.write("many.txt", "caf\xe9 \xe0 c\xf4t\xe9");
  const auto with = [&](const char* name) {
    return tokenize({.tokenizer = kTokenizers + "gpt2",
                     .out = path("out.bin"),
                     .inputs = {path(name)},
                     .no_eot = true,
                     .force = true});
  };
  EXPECT_FAILURE(with("many.txt"), Exit::corrupt,
                 AllOf(HasSubstr("many.txt: 4 of 11 bytes (36.4%) are not UTF-8"), HasSubstr("iconv")));
  testing::internal::CaptureStderr();
  EXPECT_EQ(with("few.txt"), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 of 401 bytes is not UTF-8, and read as U+FFFD"));
}

TEST_F(TokenizeTest, ReportsAnEndOfTextThatIsNeverUsed) {
  folder_.write("a.txt", "a");
  folder_.write("b.txt", "b");
  const auto said = [&](std::vector<std::string> inputs) {
    for (auto& input : inputs) input = path(input);
    testing::internal::CaptureStderr();
    tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = inputs, .eot = "x"});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said({"a.txt"}), HasSubstr("--eot x had no effect"));
  EXPECT_EQ(text(), "a");
  EXPECT_THAT(said({"a.txt", "b.txt"}), testing::Not(HasSubstr("--eot")));
  EXPECT_EQ(text(), "axb");
}

TEST_F(TokenizeTest, SeparatesDocumentsByTheEndOfText) {
  const auto tokenizer = text::load_tokenizer(kTokenizers + "smollm");
  std::vector<std::uint32_t> wanted = tokenizer->encode("one two");
  for (const char* text : {"three", "four"}) {
    wanted.push_back(0);
    for (const std::uint32_t id : tokenizer->encode(text)) wanted.push_back(id);
  }
  folder_.write("a.txt", "one two");
  folder_.write("empty.txt", "");
  folder_.write("b.jsonl", "{\"body\":\"three\"}\n\n{\"body\":\"\"}\n{\"body\":\"four\"}\n");
  TokenizeOptions options{.tokenizer = kTokenizers + "smollm",
                          .out = path("out.bin"),
                          .inputs = {path("a.txt"), path("empty.txt"), path("b.jsonl")},
                          .field = "body"};
  tokenize(options);
  EXPECT_EQ(tokens_of(path("out.bin")), wanted);
  const auto sidecar = runtime::read_sidecar(path("out.bin"));
  EXPECT_EQ(sidecar->tokenizer, "smollm");
  EXPECT_EQ(sidecar->tokenizer_hash, tokenizer->hash());
  EXPECT_EQ(sidecar->vocab_size, tokenizer->vocab_size());
  options.eot = "<|im_end|>";
  tokenize(options);
  std::replace(wanted.begin(), wanted.end(), 0u, 2u);
  EXPECT_EQ(tokens_of(path("out.bin")), wanted);
  options.eot.reset();
  options.no_eot = true;
  tokenize(options);
  std::erase(wanted, 2u);
  EXPECT_EQ(tokens_of(path("out.bin")), wanted);
  options.eot = "<|none|>";
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("contradict"));
  options.no_eot = false;
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("no such token"));
  options.eot.reset();
  options.tokenizer = kTokenizers + "bert";
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("--no-eot"));
}

// Empty documents leave no trace, an end-of-text token belongs to the document before it, and a text read in several
// parts is one document.
TEST_F(TokenizeTest, RecordsWhereDocumentsBegin) {
  const std::string long_text(1'000'000, 'x');
  folder_.write("a.txt", "abc");
  folder_.write("b.txt", long_text);
  folder_.write("c.jsonl", "{\"text\":\"de\"}\n{\"text\":\"\"}\n{\"text\":\"f\"}\n");
  testing::internal::CaptureStderr();
  tokenize({.tokenizer = "byte",
            .out = path("out.bin"),
            .inputs = {path("a.txt"), path("b.txt"), path("c.jsonl")},
            .eot = "x"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("out.bin: 1000009 tokens in 4 documents; 1 empty one left out"));
  EXPECT_EQ(begins(), (std::vector<std::uint64_t>{0, 4, 1'000'005, 1'000'008}));
  const auto sidecar = runtime::read_sidecar(path("out.bin"));
  ASSERT_TRUE(sidecar && sidecar->documents);
  EXPECT_EQ(sidecar->documents->count, 4u);
  EXPECT_FALSE(sidecar->mask);
}

// A file of masked tokens, for example of chats, is overwritten with plain text.
TEST_F(TokenizeTest, RemovesTheMaskOfOverwrittenTokens) {
  const auto tokenizer = text::load_tokenizer("byte");
  const std::vector<std::uint32_t> tokens = {'a', 'b', 'c'};
  const auto write = [&](bool counts) {
    TokenOutput output(path("out.bin"), {}, false);
    text::TokenWriter& writer = output.open(*tokenizer, std::nullopt, true);
    writer.begin_document();
    writer.add(tokens, counts);
    output.commit();
  };
  EXPECT_FAILURE(write(false), Exit::usage, HasSubstr("no trainable tokens"));
  EXPECT_EQ(files(), 0u);
  write(true);
  write(true);
  EXPECT_EQ(runtime::read_sidecar(path("out.bin"))->mask->count, 3u);
  EXPECT_EQ(folder_.read("out.bin.mask"), "\x07");
  folder_.write("a.txt", "abc");
  run({"a.txt"});
  EXPECT_FALSE(std::filesystem::exists(path("out.bin.mask")));
  folder_.write("out.bin.mask", "somebody's");
  EXPECT_FAILURE(run({"a.txt"}), Exit::usage, AllOf(HasSubstr("its mask"), HasSubstr("--force")));
}

TEST_F(TokenizeTest, TokensDoNotDependOnPartsOrThreads) {
  std::string text;  // of many parts
  for (int i = 0; text.size() < 1'500'000; ++i)
    text += fmt::format("line {} of  text,\n  it's {}\n\nA\nb{}", i, i * 7919, i % 10 == 0 ? "\xff" : "");
  folder_.write("a.txt", text);
  for (const char* name : {"llama3", "bert", "t5", "llama2"}) {  // cut at lines and spaces, at spaces, and not at all
    SCOPED_TRACE(name);
    const auto wanted = text::load_tokenizer(kTokenizers + name)->encode(text);
    for (const int threads : {1, 3}) {
      tokenize(
          {.tokenizer = kTokenizers + name, .out = path("out.bin"), .inputs = {path("a.txt")}, .threads = threads});
      EXPECT_TRUE(tokens_of(path("out.bin")) == wanted);
    }
  }
}

TEST_F(TokenizeTest, NamesTheFirstBadLineWithAnyNumberOfThreads) {
  std::string lines;
  for (int i = 1; i <= 60'000; ++i) lines += i % 20'000 == 0 ? "{\"text\":1}\n" : "{\"text\":\"some words\"}\n";
  folder_.write("a.jsonl", lines);
  for (const int threads : {1, 4}) {
    EXPECT_FAILURE(
        tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("a.jsonl")}, .threads = threads}),
        Exit::corrupt, AllOf(HasSubstr("a.jsonl, line 20000"), HasSubstr("\"text\"")));
  }
  EXPECT_EQ(files(), 1u);
}

// The advice for a text with NUL bytes would destroy tokens.
TEST_F(TokenizeTest, RefusesTokenFiles) {
  folder_.write("a.txt", "abc");
  run({"a.txt"});
  for (const char* ending : {".bin", ".bin.json", ".bin.documents"})
    std::filesystem::rename(path(std::string("out") + ending), path(std::string("chat") + ending));
  EXPECT_FAILURE(run({"chat.bin"}), Exit::usage,
                 AllOf(HasSubstr("chat.bin is a token file, as "), HasSubstr("chat.bin.json says"),
                       testing::Not(HasSubstr("tr -d"))));
  folder_.write("a.txt.json", R"({"a": 1})");  // somebody's, next to a text
  EXPECT_EQ(run({"a.txt"}), 0);
}

TEST_F(TokenizeTest, MistakesLeaveTheOldFileUnchanged) {
  folder_.write("a.txt", "old");
  run({"a.txt"});
  folder_.write("empty.txt", "");
  EXPECT_FAILURE(run({"empty.txt"}), Exit::usage, HasSubstr("no text"));
  EXPECT_FAILURE(run({"a.txt", "none.txt"}), Exit::usage, HasSubstr("none.txt"));
  EXPECT_FAILURE(run({"."}), Exit::usage, HasSubstr("is a folder: give the files in it"));
  EXPECT_FAILURE(run({"out.bin"}), Exit::usage, HasSubstr("is also an input (tokenize)"));
  EXPECT_FAILURE(run({"a.txt"}, "gpt2"), Exit::usage,
                 AllOf(HasSubstr("gpt2"), HasSubstr("neither a folder nor a file")));
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = folder_.path(), .inputs = {path("a.txt")}}), Exit::usage,
                 HasSubstr("is a folder: give the name of a file"));
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = path("no/out.bin"), .inputs = {path("a.txt")}}), Exit::usage,
                 AllOf(HasSubstr("--out "), HasSubstr("no/out.bin: there is no folder"), HasSubstr("create it first")));
  EXPECT_EQ(text(), "old");
  EXPECT_EQ(files(), 5u);
}

TEST_F(TokenizeTest, AFullDiskIsAnErrorWithPathAndReason) {
  folder_.write("a.txt", std::string(100'000, 'x'));
  // A file size limit simulates the full disk: the same write fails, with another errno.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = tests::failure_of([&] { run({"a.txt"}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(error.code(), Exit::does_not_fit);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(path("out.bin")), HasSubstr("errno 27")));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace strata::launcher
