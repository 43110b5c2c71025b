#include "launcher/commands/tokenize/tokenize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>

#include "launcher/token_output.h"
#include "runtime/data/files/tokens.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "text/tokenizer.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TokenizeTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  int run(std::vector<std::string> inputs, const std::string& tokenizer = "byte") {
    for (auto& input : inputs) input = path(input);
    return tokenize({.tokenizer = tokenizer, .out = path("out.bin"), .inputs = inputs});
  }
  std::string text() const {
    const runtime::TokenFile file(path("out.bin"), 256);
    file.check_all();  // the sidecar's count and hash among it
    std::vector<std::uint32_t> tokens(file.count());
    file.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }
  std::vector<std::uint64_t> begins() const {
    const std::string bytes = folder_.read("out.bin.documents");
    std::vector<std::uint64_t> out(bytes.size() / sizeof(std::uint64_t));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  std::size_t files() const {
    const std::filesystem::directory_iterator list(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(list), end(list)));
  }
  tests::ScratchFolder folder_;
};

TEST_F(TokenizeTest, BytesOfAllInputsOneAfterTheOther) {
  std::string large;  // of several pieces
  for (int i = 0; i < 1'000'003; ++i) large += static_cast<char>(i * 31);
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

TEST_F(TokenizeTest, TextOfEachJsonLine) {
  const std::string long_text(600'000, 'x');  // a line of several pieces
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

TEST_F(TokenizeTest, AByteOrderMarkInJsonlIsNamed) {
  folder_.write("a.jsonl", "\xef\xbb\xbf{\"text\":\"a\"}\n");
  EXPECT_FAILURE(
      run({"a.jsonl"}), Exit::corrupt,
      AllOf(HasSubstr("a.jsonl, line 1, offset 0"), HasSubstr("byte order mark (EF BB BF)"), HasSubstr("sed")));
  folder_.write("a.jsonl", "{\"text\":\"a\"}\n\xef\xbb\xbf{\"text\":\"a\"}\n");  // two files, put together
  EXPECT_FAILURE(run({"a.jsonl"}), Exit::corrupt, AllOf(HasSubstr("line 2"), HasSubstr("byte order mark")));
  folder_.write("a.jsonl", std::string("\xff\xfe{\0\"\0", 6));
  EXPECT_FAILURE(run({"a.jsonl"}), Exit::corrupt, AllOf(HasSubstr("UTF-16"), HasSubstr("iconv")));
}

TEST_F(TokenizeTest, AnEndOfTextThatGoesNowhereIsSaid) {
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

// Tokens of out.bin, whatever the tokenizer.
std::vector<std::uint32_t> tokens_of(const std::string& path) {
  const runtime::TokenFile file(path, std::nullopt);
  file.check_all();
  std::vector<std::uint32_t> tokens(file.count());
  file.read(0, tokens);
  return tokens;
}

const std::string kTokenizers = std::string(STRATA_SOURCE_DIR) + "/tests/golden/tokenizers/";

TEST_F(TokenizeTest, DocumentsWithTheEndOfTextBetween) {
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

// Empty documents leave no trace, an end-of-text token belongs to the document before it, and text that is read in
// several parts is one document.
TEST_F(TokenizeTest, WhereDocumentsBeginIsKept) {
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
              HasSubstr("out.bin: 1000009 tokens in 4 documents; 1 empty ones left out"));
  EXPECT_EQ(begins(), (std::vector<std::uint64_t>{0, 4, 1'000'005, 1'000'008}));
  const auto sidecar = runtime::read_sidecar(path("out.bin"));
  ASSERT_TRUE(sidecar && sidecar->documents);
  EXPECT_EQ(sidecar->documents->count, 4u);
  EXPECT_FALSE(sidecar->mask);
}

// A file of masked tokens, as a chat's are, over which plain text is written.
TEST_F(TokenizeTest, AMaskGoesWithTheTokensThatItIsOf) {
  const auto tokenizer = text::load_tokenizer("byte");
  const std::vector<std::uint32_t> tokens = {'a', 'b', 'c'};
  const auto write = [&](bool counts) {
    TokenOutput output(path("out.bin"), {}, false);
    text::TokenWriter& writer = output.open(*tokenizer, std::nullopt, true);
    writer.begin_document();
    writer.add(tokens, counts);
    output.commit();
  };
  EXPECT_FAILURE(write(false), Exit::usage, HasSubstr("no token of the input counts as a label"));
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

// What stands in a token file, with what counts as a label in brackets.
class RecordsTest : public TokenizeTest {
 protected:
  std::string shown(TokenizeOptions options) {
    if (options.tokenizer.empty()) options.tokenizer = "byte";
    options.out = path("out.bin");
    for (auto& input : options.inputs) input = path(input);
    if (options.chat_template) options.chat_template = path(*options.chat_template);
    testing::internal::CaptureStderr();
    try {
      tokenize(options);
    } catch (...) {
      said_ = testing::internal::GetCapturedStderr();
      throw;
    }
    said_ = testing::internal::GetCapturedStderr();
    const std::string mask = folder_.read("out.bin.mask"), all = text();
    std::string out;
    bool inside = false;
    for (std::size_t i = 0; i <= all.size(); ++i) {
      const bool counts = i < all.size() && (mask[i / 8] >> (i % 8) & 1) != 0;
      if (counts != inside) out += counts ? '[' : ']';
      inside = counts;
      if (i < all.size()) out += all[i];
    }
    return out;
  }
  std::string said_;
};

constexpr const char* kTurns =
    "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }};"
    "{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}";

TEST_F(RecordsTest, ConversationsAreWhatTheirTemplateWrites) {
  folder_.write("t.jinja", kTurns);
  folder_.write("a.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": "
                "\"q\"}]}\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"no answer\"}]}\n");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), "u:p;a:[q;]u:no answer;");
  EXPECT_THAT(said_, AllOf(HasSubstr("a.jsonl: chat, written by"), HasSubstr("trained on: assistant"),
                           HasSubstr("1 of 2 documents hold nothing to train on")));
  EXPECT_EQ(begins(), (std::vector<std::uint64_t>{0, 8}));
  const auto written_by = [&] { return runtime::read_sidecar(folder_.path() / "out.bin")->chat_template_hash; };
  EXPECT_EQ(written_by().size(), 16u);
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja", .train_on = "all"}), "[u:p;a:q;u:no answer;]");
  folder_.write("g.jsonl",
                "{\"conversations\": [{\"from\": \"human\", \"value\": \"p\"}, {\"from\": \"gpt\", "
                "\"value\": \"q\"}]}");
  EXPECT_EQ(shown({.inputs = {"g.jsonl"}, .chat_template = "t.jinja"}), "u:p;a:[q;]");
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl", "g.jsonl"}, .chat_template = "t.jinja"}), Exit::corrupt,
                 AllOf(HasSubstr("g.jsonl, line 1"), HasSubstr("\"messages\"")));
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}}), Exit::usage, HasSubstr("need a chat template"));
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}, .no_eot = true, .chat_template = "t.jinja"}), Exit::usage,
                 HasSubstr("--no-eot has no place here"));
}

TEST_F(RecordsTest, WhatATemplateRefusesIsNamedByLine) {
  folder_.write("t.jinja", "{{ raise_exception('Only user and assistant roles are supported!') }}");
  folder_.write("a.jsonl", "\n{\"messages\": [{\"role\": \"narrator\", \"content\": \"p\"}]}\n");
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), Exit::corrupt,
                 AllOf(HasSubstr("a.jsonl, line 2: "), HasSubstr("t.jinja, line 1"),
                       HasSubstr("Only user and assistant roles are supported!")));
  EXPECT_EQ(files(), 2u);
}

TEST_F(RecordsTest, CompletionsEndWithTheEndOfText) {
  folder_.write("a.jsonl", "{\"prompt\": \"1+1=\", \"completion\": \"2\"}\n{\"prompt\": \"x\", \"completion\": \"\"}");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .eot = "$"}), "1+1=[2$]x[$]");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}}), "1+1=[2]x");
  folder_.write("i.jsonl", "{\"instruction\": \"Add.\", \"input\": \"1\", \"output\": \"2\"}");
  EXPECT_THAT(shown({.inputs = {"i.jsonl"}, .eot = "$"}),
              AllOf(testing::StartsWith("Below is"), testing::EndsWith("### Input:\n1\n\n### Response:\n[2$]")));
  folder_.write("t.jinja", kTurns);
  EXPECT_EQ(shown({.inputs = {"i.jsonl"}, .chat_template = "t.jinja"}), "u:Add.\n1;a:[2;]");
  EXPECT_THAT(said_, HasSubstr("alpaca, written by"));
}

TEST_F(RecordsTest, TablesHaveAHeader) {
  std::string rows = "\xef\xbb\xbfid,prompt,completion\r\n";
  for (int i = 0; i < 30'000; ++i) rows += fmt::format("{},\"a, \"\"b\"\"\n{}\",c\r\n", i, i);  // of many parts
  folder_.write("a.csv", rows);
  for (const int threads : {1, 3}) {
    const std::string all = shown({.inputs = {"a.csv"}, .threads = threads});
    EXPECT_THAT(all.substr(0, 24), testing::StartsWith("a, \"b\"\n0[c]a, \"b\"\n1[c]"));
    EXPECT_THAT(all, testing::EndsWith("a, \"b\"\n29999[c]"));
  }
  folder_.write("b.tsv", "body\tid\nsome text\t1\nmore\t2");
  tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("b.tsv")}, .field = "body"});
  EXPECT_EQ(text(), "some textmore");
  EXPECT_EQ(begins(), (std::vector<std::uint64_t>{0, 9}));
  folder_.write("b.tsv", "body\tid\nsome text\n");
  EXPECT_FAILURE(run({"b.tsv"}), Exit::corrupt, AllOf(HasSubstr("b.tsv, line 2"), HasSubstr("expected 2 fields")));
}

TEST_F(RecordsTest, WhatIsNotReadSaysWhatToDo) {
  EXPECT_FAILURE(run({"a.parquet"}), Exit::usage, AllOf(HasSubstr("Parquet"), HasSubstr("read_parquet('")));
  folder_.write("a.json", "[{\"text\": \"a\"}]");
  EXPECT_FAILURE(run({"a.json"}), Exit::usage, AllOf(HasSubstr("jq -c '.[]'"), HasSubstr("--format text")));
  tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("a.json")}, .format = "text"});
  EXPECT_EQ(text(), "[{\"text\": \"a\"}]");
  folder_.write("b.jsonl", "{\"messages\": [], \"text\": \"a\"}");
  EXPECT_FAILURE(run({"b.jsonl"}), Exit::corrupt,
                 AllOf(HasSubstr("b.jsonl, line 1"), HasSubstr("both messages and text")));
  tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("b.jsonl")}, .format = "text"});
  EXPECT_EQ(text(), "a");
  folder_.write("c.jsonl", "{\"text\": \"a\"}");
  const auto with = [&](TokenizeOptions options) {
    options.tokenizer = "byte";
    options.out = path("out.bin");
    options.inputs = {path("c.jsonl")};
    return tokenize(options);
  };
  EXPECT_FAILURE(with({.train_on = "assistant"}), Exit::usage, HasSubstr("the input is text"));
  EXPECT_FAILURE(with({.chat_template = path("t.jinja")}), Exit::usage, HasSubstr("no such file"));
  folder_.write("t.jinja", "");
  EXPECT_FAILURE(with({.chat_template = path("t.jinja")}), Exit::usage, HasSubstr("is for conversations"));
}

TEST_F(TokenizeTest, PartsAndThreadsChangeNoToken) {
  std::string text;  // of many parts
  for (int i = 0; text.size() < 1'500'000; ++i)
    text += fmt::format("line {} of  text,\n  it's {}\n\nA\nb\xff", i, i * 7919);
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

TEST_F(TokenizeTest, TheFirstBadLineIsNamedWhateverTheThreads) {
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

TEST_F(TokenizeTest, MistakesLeaveTheOldFileAlone) {
  folder_.write("a.txt", "old");
  run({"a.txt"});
  folder_.write("empty.txt", "");
  EXPECT_FAILURE(run({"empty.txt"}), Exit::usage, HasSubstr("no text"));
  EXPECT_FAILURE(run({"a.txt", "none.txt"}), Exit::usage, HasSubstr("none.txt"));
  EXPECT_FAILURE(run({"."}), Exit::usage, HasSubstr("cannot be read"));
  EXPECT_FAILURE(run({"out.bin"}), Exit::usage, HasSubstr("is what tokenize reads"));
  EXPECT_FAILURE(run({"a.txt"}, "gpt2"), Exit::usage,
                 AllOf(HasSubstr("gpt2"), HasSubstr("neither a folder nor a file")));
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = folder_.path(), .inputs = {path("a.txt")}}), Exit::usage,
                 HasSubstr("is a folder: give the name of a file"));
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = path("no/out.bin"), .inputs = {path("a.txt")}}), Exit::usage,
                 AllOf(HasSubstr("--out "), HasSubstr("no/out.bin: there is no folder"), HasSubstr("make it first")));
  EXPECT_EQ(text(), "old");
  EXPECT_EQ(files(), 5u);
}

TEST_F(TokenizeTest, AFullDiskIsAnErrorWithPathAndReason) {
  folder_.write("a.txt", std::string(100'000, 'x'));
  // The file size limit stands in for the disk: it fails the same write, with another errno.
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

TEST_F(TokenizeTest, LabelsOfDocuments) {
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
  // Types: what is behind the first [SEP] of each document.
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
  // Again without a pair: the types of before are taken away.
  options.pair = std::nullopt;
  EXPECT_EQ(tokenize(options), 0);
  EXPECT_FALSE(std::filesystem::exists(path("out.bin.types")));
  // And without labels.
  options.labels = {};
  options.no_eot = true;
  EXPECT_EQ(tokenize(options), 0);
  EXPECT_FALSE(std::filesystem::exists(path("out.bin.labels.jsonl")));
}

TEST_F(TokenizeTest, LabelsRefuseWhatIsNotTheirs) {
  folder_.write("a.csv", "text,label\na,b\n");
  folder_.write("a.txt", "text");
  TokenizeOptions options{.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("a.txt")}, .labels = {"label"}};
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("is plain text, which has no labels"));
  options.inputs = {path("a.csv")};
  options.eot = "x";
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("--eot has no place beside --labels"));
  options.eot = std::nullopt;
  options.truncation = "only_first";
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("--truncation has no place without --max-length"));
  options.truncation = "only_second";
  options.max_length = 5;
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("only_second is for pairs"));
  options.labels = {};
  EXPECT_FAILURE(tokenize(options), Exit::usage, HasSubstr("has no place without --labels"));
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
  // Without labels, too: the header decides.
  EXPECT_FAILURE(tokenize({.tokenizer = "byte", .out = path("o.bin"), .inputs = {path("a.csv")}, .field = "body"}),
                 Exit::usage, HasSubstr("a.csv: there is no field \"body\" (--field); the fields are text, label"));
}

TEST_F(TokenizeTest, WhatTheLabelsAreIsSaidShort) {
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
  EXPECT_THAT(said("one.csv"), AllOf(HasSubstr("labels: 1 class ("), testing::Not(HasSubstr("different labels"))));
}

TEST_F(TokenizeTest, RecordsAreReadStrictly) {
  const auto refused = [&](const std::string& name, const std::string& text, const std::string& why) {
    folder_.write(name, text);
    EXPECT_FAILURE(run({name}), Exit::corrupt, HasSubstr(why));
  };
  refused("a.csv", "text\nok\n\"open\nand on\n", "a.csv, line 3, offset 8: field 1 begins with a quote that is not");
  refused("a.csv", "text,b\nok,1\n\"a\"b,2\n", "line 3, offset 12: text stands behind the quote that closes field 1");
  refused("a.csv", "text,text\na,b\n", "line 1: the header names \"text\" twice");
  refused("a.csv", "text,b\na\rb,c\n", "line 2, offset 7: a carriage return stands alone");
  refused("a.csv", "text\ra\rb\r", "line 1: a carriage return stands alone");
  refused("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\", \"text\": \"b\"}\n",
          "a.jsonl, line 2, column 15: this is no JSON: the field \"text\" stands twice");
  refused("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\", \"messages\": []}\n",
          "line 2, offset 14: both messages and text are there");
  refused("a.jsonl",
          "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}\n",
          "line 2, offset 35: both prompt and completion and text are there");
}

}  // namespace
}  // namespace strata::launcher
