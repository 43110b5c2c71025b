// Records that consist of more than a text: conversations, completions, tables.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/failure.h"
#include "tests/launcher/commands/tokenize/tokenize_case.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Shows a token file's text with the labels in brackets.
class RecordsTest : public TokenizeCase {
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
      const bool counts = i < all.size() && i / 8 < mask.size() && (mask[i / 8] >> (i % 8) & 1) != 0;
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

TEST_F(RecordsTest, ConversationsAreWrittenByTheirTemplate) {
  folder_.write("t.jinja", kTurns);
  folder_.write("a.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": "
                "\"q\"}]}\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"no answer\"}]}\n");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), "u:p;a:[q;]u:no answer;");
  EXPECT_THAT(said_, AllOf(HasSubstr("a.jsonl: chat, written by"), HasSubstr("trained on: assistant"),
                           HasSubstr("1 of 2 documents holds nothing to train on")));
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
                 HasSubstr("--no-eot does not apply to conversations"));
}

// As in TRL, answers in the prompt are context, unless --train-on asks for them. Each record shows its own format.
TEST_F(RecordsTest, TrainsOnTheCompletionAfterAPrompt) {
  folder_.write("t.jinja", kTurns);
  const std::string completed =
      R"({"prompt": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q"},)"
      R"( {"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "s"}]})";
  const std::string chat = R"({"messages": [{"role": "assistant", "content": "v"}, {"role": "user", "content": "w"},)"
                           R"( {"role": "assistant", "content": "x"}]})";
  folder_.write("a.jsonl", completed + "\n" + chat + "\n");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), "u:p;a:q;u:r;a:[s;]a:[v;]u:w;a:[x;]");
  EXPECT_THAT(said_, HasSubstr("trained on: completion"));
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .format = "chat", .chat_template = "t.jinja"}),
            "u:p;a:q;u:r;a:[s;]a:[v;]u:w;a:[x;]");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja", .train_on = "assistant"}),
            "u:p;a:[q;]u:r;a:[s;]a:[v;]u:w;a:[x;]");
  EXPECT_THAT(said_, HasSubstr("trained on: assistant"));
  folder_.write("b.jsonl", chat + "\n" + completed + "\n");
  EXPECT_EQ(shown({.inputs = {"b.jsonl"}, .chat_template = "t.jinja"}), "a:[v;]u:w;a:[x;]u:p;a:q;u:r;a:[s;]");
  EXPECT_THAT(said_, HasSubstr("trained on: assistant"));
}

TEST_F(RecordsTest, ATemplatesRefusalNamesTheLine) {
  folder_.write("t.jinja", "{{ raise_exception('Only user and assistant roles are supported!') }}");
  folder_.write("a.jsonl", "\n{\"messages\": [{\"role\": \"narrator\", \"content\": \"p\"}]}\n");
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), Exit::corrupt,
                 AllOf(HasSubstr("a.jsonl, line 2: "), HasSubstr("t.jinja, line 1"),
                       HasSubstr("Only user and assistant roles are supported!")));
  EXPECT_EQ(files(), 2u);
}

TEST_F(RecordsTest, NamesContentThatIsNotText) {
  folder_.write("t.jinja", "{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
  folder_.write("a.jsonl",
                R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": null}]})");
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja", .train_on = "all"}), Exit::corrupt,
                 AllOf(HasSubstr("a.jsonl, line 1"), HasSubstr("turn 2 has no \"content\"")));
  folder_.write("b.jsonl", R"({"messages": [{"role": "assistant", "tool_calls": []}]})");
  EXPECT_FAILURE(shown({.inputs = {"b.jsonl"}, .chat_template = "t.jinja", .train_on = "all"}), Exit::corrupt,
                 HasSubstr("turn 1 has no \"content\""));
}

// The values come from transformers (render_jinja_template after _normalize_chat_messages).
TEST_F(RecordsTest, NullFieldsOfATurnAreAbsent) {
  const auto written = [&](const std::string& source) {
    folder_.write("t.jinja", source);
    return shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"});
  };
  folder_.write("a.jsonl", R"({"messages": [{"role": "user", "content": "q", "tool_calls": null, "name": null}, )"
                           R"({"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": )"
                           R"({"name": "f", "arguments": {"a": null}}}], "reasoning_content": null}, )"
                           R"({"role": "tool", "content": "r", "tool_calls": null}, )"
                           R"({"role": "assistant", "content": "b", "tool_calls": null}]})");
  EXPECT_EQ(written("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | trim }};{% endfor %}"),
            "<user>q;[<assistant>;]<tool>r;[<assistant>b;]");
  EXPECT_EQ(written("{% for m in messages %}<{{ m.role }}>{% if 'tool_calls' in m and m.tool_calls | length > 0 %}"
                    "{{ m.tool_calls | length }}{% else %}{{ m['content'] }}{% endif %};{% endfor %}"),
            "<user>q;[<assistant>1;]<tool>r;[<assistant>b;]");
  EXPECT_EQ(written("{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
                    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% if m.tool_calls is defined %}"
                    "{{ m.tool_calls | tojson }}{% endif %};{% endfor %}"),
            "<user>q;[<assistant>[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
            "{\"a\": null}}}];]<tool>r;[<assistant>b;]");
}

TEST_F(RecordsTest, NamesUnreadFieldsOnceWithTheirCounts) {
  folder_.write("t.jinja", kTurns);
  folder_.write(
      "a.jsonl",
      R"({"system": "s", "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "q",)"
      R"( "function_call": {"name": "f"}, "loss": true}], "images": ["a.png"]})"
      "\n"
      R"({"system": "s", "messages": [{"role": "assistant", "content": "r", "reasoning": "x"}], "images": []})");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), "u:p;a:[q;]a:[r;]");
  EXPECT_THAT(said_, AllOf(HasSubstr("fields that are not read: system (2 records), images (1 record)"),
                           HasSubstr("t.jinja does not write: function_call (1 record), reasoning (1 record)")));
  folder_.write("t.jinja", std::string(kTurns) + "{# thinking #}");
  (void)shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"});
  EXPECT_THAT(said_, testing::Not(HasSubstr("reasoning"))) << "a template under one name counts for all";
  folder_.write("d.csv", "instruction,context,response,output\ni,c,r,o\nj,,r,o\n");
  (void)shown({.inputs = {"d.csv"}});
  EXPECT_THAT(said_, HasSubstr("not read: response (2 records), context (1 record)"));
  folder_.write("b.jsonl", R"({"text": "a", "url": "u", "meta": null, "n": 1e400})"
                           "\n"
                           R"({"text": "b", "url": "u", "meta": {}, "tags": [1]})");
  EXPECT_EQ(run({"b.jsonl"}), 0);
  for (const bool given : {false, true}) {
    testing::internal::CaptureStderr();
    TokenizeOptions options{.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("b.jsonl")}};
    if (given) options.field = "text";
    tokenize(options);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("url (2 records), n (1 record), tags (1 record)") != said.npos, !given) << said;
    EXPECT_EQ(said.find("not read") != said.npos, !given);
  }
}

TEST_F(RecordsTest, RefusesPreferenceDataWithTheLine) {
  folder_.write("t.jinja", kTurns);
  const std::string turns = R"({"messages": [{"role": "assistant", "content": "q"}])";
  folder_.write("a.jsonl", turns + "}\n" + turns + ", \"label\": false}\n");
  for (const char* format : {"", "chat"}) {
    TokenizeOptions options{.inputs = {"a.jsonl"}, .chat_template = "t.jinja"};
    if (*format) options.format = format;
    EXPECT_FAILURE(shown(options), Exit::corrupt, AllOf(HasSubstr("a.jsonl, line 2"), HasSubstr("KTO")));
  }
  folder_.write("b.csv", "prompt,completion,label\np,c,True\n");
  EXPECT_FAILURE(shown({.inputs = {"b.csv"}}), Exit::corrupt, HasSubstr("KTO"));
  folder_.write("c.jsonl", R"({"conversations": [{"from": "human", "value": "q"}], "chosen": {"value": "a"}})");
  EXPECT_FAILURE(shown({.inputs = {"c.jsonl"}, .chat_template = "t.jinja"}), Exit::corrupt,
                 HasSubstr("preference data"));
}

TEST_F(RecordsTest, AcceptsMasksOfOtherTrainers) {
  folder_.write("t.jinja", kTurns);
  folder_.write("a.jsonl",
                R"({"messages": [{"role": "assistant", "content": "wrong", "loss": false}, )"
                R"({"role": "user", "content": "p"}, {"role": "assistant", "content": "q", "loss": true}]})");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), "a:wrong;u:p;a:[q;]");
}

TEST_F(RecordsTest, TheFirstLineOfATableNamesItsColumns) {
  folder_.write("a.tsv", "a charming journey\t1\nbad\t0\n");
  EXPECT_FAILURE(run({"a.tsv"}), Exit::corrupt,
                 AllOf(HasSubstr("a charming journey, 1"), HasSubstr("the first line of a table names its columns")));
  EXPECT_FAILURE(shown({.inputs = {"a.tsv"}, .field = "text"}), Exit::usage, HasSubstr("names its columns"));
  EXPECT_FAILURE(shown({.inputs = {"a.tsv"}, .labels = {"label"}}), Exit::usage, HasSubstr("names its columns"));
}

TEST_F(RecordsTest, ExplainsHowToConvertTaggedWords) {
  folder_.write("a.conll", "EU B-ORG\nrejects O\n\nPeter\tB-PER\n");
  const auto said = [&](const std::string& name) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run({name}), 0);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said("a.conll"),
              AllOf(HasSubstr("a.conll has a word and its tag in each line, but is read as plain text"),
                    HasSubstr("jq -Rsc"), HasSubstr("--field tokens --labels tags")));
  EXPECT_FAILURE(shown({.inputs = {"a.conll"}, .labels = {"tags"}}), Exit::usage,
                 AllOf(HasSubstr("--labels takes .jsonl, .csv or .tsv: jq"), HasSubstr("a.conll.jsonl")));
  folder_.write("b.txt", "Double-O\nBe O\nO\nTo O\n");
  EXPECT_THAT(said("b.txt"), testing::Not(HasSubstr("jq -")));
}

// A model that is never shown its tools learns to answer nothing.
TEST_F(RecordsTest, CountsToolsThatTheTemplateOmits) {
  folder_.write("t.jinja", kTurns);
  folder_.write(
      "a.jsonl",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"q\"}],"
      " \"tools\": [{\"name\": \"f\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"\","
      " \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"q\"}]}\n");
  (void)shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"});
  EXPECT_THAT(said_, AllOf(HasSubstr("2 of 3 documents have tools"), HasSubstr("t.jinja does not write")));
  folder_.write("w.jinja", "{{ tools }}{% for m in messages %}{{ m.tool_calls }}{% endfor %}" + std::string(kTurns));
  (void)shown({.inputs = {"a.jsonl"}, .chat_template = "w.jinja"});
  EXPECT_THAT(said_, testing::Not(HasSubstr("tools")));
}

TEST_F(RecordsTest, ReportsTurnsThatTheTemplateWritesDifferently) {
  folder_.write("t.jinja",
                "{% for m in messages if m.role != 'developer' %}{{ m.role[0] }}:{{ '?' if loop.last }}{{ m.content }}"
                "{% for c in m.tool_calls %}{{ c.arguments | tojson }}{% endfor %};{% endfor %}"
                "{{ 'a:' if add_generation_prompt }}");
  folder_.write("a.jsonl", R"({"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": "p"},)"
                           R"( {"role": "assistant", "content": "q", "tool_calls": [{"arguments": "{\"x\": null}"}]},)"
                           R"( {"role": "user", "content": "r"}, {"role": "assistant", "content": "s"}]})");
  EXPECT_EQ(shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), "u:p;a:[q{\"x\": null};]u:r;a:[?s;]");
  EXPECT_THAT(said_, AllOf(HasSubstr("does not write: developer (1 turn)"), HasSubstr("arguments are JSON in a text"),
                           HasSubstr("1 of 1 document has null arguments"), HasSubstr("1 answer is trained on as")));
}

TEST_F(RecordsTest, ReportsAMissingRole) {
  folder_.write("t.jinja", kTurns);
  folder_.write("a.jsonl", R"({"messages": [{"role": "human", "content": "p"}, {"role": "bot", "content": "q"}]})");
  EXPECT_FAILURE(
      shown({.inputs = {"a.jsonl"}, .chat_template = "t.jinja"}), Exit::usage,
      AllOf(HasSubstr("no trainable tokens"), HasSubstr("role \"assistant\""), HasSubstr("roles found: bot, human")));
  folder_.write("b.jsonl", R"({"body": "p"})");
  EXPECT_FAILURE(shown({.inputs = {"b.jsonl"}}), Exit::corrupt, HasSubstr("the fields body: give --field NAME"));
  folder_.write("c.jsonl", R"({"question": "p", "answer": "q"})");
  EXPECT_FAILURE(shown({.inputs = {"c.jsonl"}}), Exit::corrupt,
                 AllOf(HasSubstr("rename"), testing::Not(HasSubstr("--field"))));
}

TEST_F(RecordsTest, AJsonListGivesTheCommandThatMakesLinesOfIt) {
  folder_.write("a.jsonl", R"([{"text": "p"}, {"text": "q"}])");
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}}), Exit::corrupt, AllOf(HasSubstr("a list"), HasSubstr("jq -c '.[]'")));
}

TEST_F(RecordsTest, NotesRecordsThatAreReadAsText) {
  folder_.write("a.txt", "{\"text\": \"p\"}\n");
  EXPECT_EQ(shown({.inputs = {"a.txt"}, .no_eot = true}), "{\"text\": \"p\"}\n");
  EXPECT_THAT(said_, HasSubstr("a.txt begins like JSON, but is read as plain text"));
  (void)shown({.inputs = {"a.txt"}, .no_eot = true, .format = "text"});
  EXPECT_THAT(said_, testing::Not(HasSubstr("begins like JSON")));
  folder_.write("a.jsonl", "[{\"text\": \"p\"},\n{\"text\": \"q\"}]\n");
  EXPECT_FAILURE(shown({.inputs = {"a.jsonl"}}), Exit::corrupt, HasSubstr("jq -c '.[]'"));
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

// Llama 3's tokenizer begins a text with a token, and generate a prompt.
TEST_F(RecordsTest, NotesDocumentsWithoutTheInitialToken) {
  folder_.write("a.jsonl", "{\"prompt\": \"1+1=\", \"completion\": \"2\"}\n");
  folder_.write("a.txt", "plain");
  const auto said = [&](const std::string& tokenizer, const char* input, bool add_special) {
    testing::internal::CaptureStderr();
    tokenize({.tokenizer = kTokenizers + tokenizer,
              .out = path("out.bin"),
              .inputs = {path(input)},
              .no_eot = true,
              .add_special = add_special,
              .force = true});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said("llama3", "a.jsonl", false),
              AllOf(HasSubstr("begin without <|begin_of_text|>"), HasSubstr("--add-special")));
  for (const std::string& quiet :
       {said("llama3", "a.jsonl", true), said("llama3", "a.txt", false), said("qwen2", "a.jsonl", false)})
    EXPECT_THAT(quiet, testing::Not(HasSubstr("begin without")));
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

TEST_F(RecordsTest, UnreadableInputGivesAdvice) {
  folder_.write("a.parquet", "PAR1");
  EXPECT_FAILURE(run({"a.parquet"}), Exit::usage,
                 AllOf(HasSubstr("Parquet"), HasSubstr("pyarrow.parquet.read_table(argv[1])")));
  folder_.write("it's.parquet", "PAR1");
  EXPECT_FAILURE(run({"it's.parquet"}), Exit::usage,
                 AllOf(HasSubstr("/it'\\''s.parquet' '"), HasSubstr("/it'\\''s.jsonl' converts it")));
  folder_.write("a.json", "[{\"text\": \"a\"}]");
  EXPECT_FAILURE(run({"a.json"}), Exit::usage, AllOf(HasSubstr("jq -c '.[]'"), HasSubstr("--format text")));
  tokenize({.tokenizer = "byte", .out = path("out.bin"), .inputs = {path("a.json")}, .format = "text"});
  EXPECT_EQ(text(), "[{\"text\": \"a\"}]");
  folder_.write("b.jsonl", "{\"messages\": [], \"text\": \"a\"}");
  EXPECT_FAILURE(
      run({"b.jsonl"}), Exit::corrupt,
      AllOf(HasSubstr("b.jsonl, line 1"), HasSubstr("both messages and text"), testing::Not(HasSubstr("--field"))));
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
  EXPECT_FAILURE(with({.chat_template = path("t.jinja")}), Exit::usage, HasSubstr("neither such a file"));
  folder_.write("t.jinja", "");
  EXPECT_FAILURE(with({.chat_template = path("t.jinja")}), Exit::usage, HasSubstr("is for conversations"));
}

TEST_F(RecordsTest, RecordsAreReadStrictly) {
  const auto refused = [&](const std::string& name, const std::string& text, const std::string& why) {
    folder_.write(name, text);
    EXPECT_FAILURE(run({name}), Exit::corrupt, HasSubstr(why));
  };
  refused("a.csv", "text\nok\n\"open\nand on\n", "a.csv, line 3, offset 8: field 1 begins with a quote that is never");
  refused("a.csv", "text,b\nok,1\n\"a\"b,2\n", "line 3, offset 12: there is text after the quote that closes field 1");
  refused("a.csv", "text,text\na,b\n", "line 1: the header names \"text\" twice");
  refused("a.csv", "text;b\nok;1\n", "a.csv, line 1: the header is one field, \"text;b\": .csv is separated by commas");
  refused("a.tsv", "text,b\nok,1\n", "a.tsv, line 1: the header is one field, \"text,b\"");
  refused("a.csv", "text,b\na\rb,c\n", "line 2, offset 7: there is a carriage return without a line feed");
  refused("a.csv", "text\ra\rb\r", "line 1: there is a carriage return without a line feed");
  refused("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\", \"text\": \"b\"}\n",
          "a.jsonl, line 2, column 15: this is not JSON: the field \"text\" occurs twice");
  refused("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\", \"messages\": []}\n",
          "line 2, offset 14: both messages and text are present");
  refused("a.jsonl",
          "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}\n",
          "line 2, offset 35: both prompt and completion and text are present");
}

}  // namespace
}  // namespace strata::launcher
