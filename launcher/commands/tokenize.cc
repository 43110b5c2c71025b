#include "launcher/commands/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "launcher/screen/activity.h"
#include "launcher/screen/printable.h"
#include "launcher/token_output.h"
#include "text/chat/chat_template.h"
#include "text/chat/part_tokenizer.h"
#include "text/chat/record.h"
#include "text/documents.h"
#include "text/token_writer.h"
#include "text/tokenizer.h"

namespace strata::launcher {
namespace {

using text::DataFormat;
using text::DocumentInput;
using text::DocumentPart;
using text::DocumentReader;
using text::InputKind;
using text::PartTokenizer;
using text::PartTokens;
using text::RecordRules;
using text::Tokenizer;
using text::TokenWriter;

// Threads take parts in turn, and write what they made of them in the order of the parts.
class Conveyor {
 public:
  // `bytes`: of all inputs; 0 if nobody knows.
  Conveyor(DocumentReader& reader, TokenWriter& writer, std::uint64_t bytes)
      : reader_(reader), writer_(writer), bytes_(bytes) {}

  void run(std::size_t threads, const Tokenizer& tokenizer, const RecordRules& rules) {
    const auto work = [&] {
      PartTokenizer part_tokenizer(tokenizer, rules);
      DocumentPart part;
      PartTokens tokens;
      while (step(part_tokenizer, part, tokens)) {
      }
    };
    std::vector<std::jthread> others;
    try {
      for (std::size_t i = 1; i < threads; ++i)
        others.push_back(start_thread(fmt::format("thread {} of --threads {}", i + 1, threads), work));
    } catch (...) {
      const std::lock_guard lock(reading_);
      ended_ = true;
      throw;
    }
    work();
    others.clear();
    if (error_) std::rethrow_exception(error_);
  }
  // Documents in which no token counts as a label.
  std::uint64_t unlabelled() const { return unlabelled_; }

 private:
  // One part; false where there is none any more, or something went wrong with an earlier one.
  bool step(PartTokenizer& part_tokenizer, DocumentPart& part, PartTokens& tokens) {
    std::exception_ptr error;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(reading_);
      number = taken_;
      try {
        if (ended_ || !reader_.next(part)) return false;
      } catch (...) {
        error = std::current_exception();
        ended_ = true;
      }
      ++taken_;
    }
    if (!error) {
      try {
        done_ += part.text.size();
        part_tokenizer.run(part, tokens);
        activity_.show(done_, bytes_);
      } catch (...) {
        error = std::current_exception();
      }
    }
    std::unique_lock lock(writing_);
    turn_.wait(lock, [&] { return written_ == number; });
    if (!error && !error_) {
      try {
        write(tokens);
      } catch (...) {
        error = std::current_exception();
      }
    }
    // The first in the order of the input, whichever thread was first.
    if (error && !error_) error_ = error;
    ++written_;
    turn_.notify_all();
    return !error_;
  }
  void write(const PartTokens& tokens) {
    const auto add = [&](std::size_t from, std::size_t to) {
      const auto ids = std::span(tokens.ids).subspan(from, to - from);
      if (tokens.counts.empty())
        writer_.add(ids);
      else
        writer_.add(ids, std::span(tokens.counts).subspan(from, to - from));
    };
    std::size_t done = 0;
    for (const std::size_t begin : tokens.begins) {
      add(done, begin);
      writer_.begin_document();
      done = begin;
    }
    add(done, tokens.ids.size());
    unlabelled_ += tokens.unlabelled;
  }

  DocumentReader& reader_;
  TokenWriter& writer_;
  std::uint64_t bytes_;
  std::atomic<std::uint64_t> done_ = 0;
  Activity activity_{"tokenizing", Activity::Unit::bytes};
  std::mutex reading_, writing_;
  std::condition_variable turn_;
  std::uint64_t taken_ = 0, written_ = 0, unlabelled_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
};

// The token that ends a document: that of --eot, or the tokenizer's own.
std::optional<std::uint32_t> end_token(const TokenizeOptions& options, const Tokenizer& tokenizer, bool needed) {
  if (options.eot && options.no_eot) fail(Exit::usage, "--eot and --no-eot contradict each other");
  if (options.no_eot) return std::nullopt;
  if (options.eot) {
    const auto id = tokenizer.id_of(*options.eot);
    if (!id) fail(Exit::usage, "--eot {}: the tokenizer {} has no such token", *options.eot, tokenizer.name());
    return id;
  }
  if (!tokenizer.end_of_text() && needed && tokenizer.name() != "byte") {
    fail(Exit::usage,
         "the tokenizer {} names no end-of-text token to put between documents: give --eot TOKEN, or --no-eot",
         tokenizer.name());
  }
  return tokenizer.end_of_text();
}

bool is_table(std::string_view format) {
  return format == "csv" || format == "tsv";
}

// How an input holds documents: by --format, else by its name.
DocumentInput input_of(const std::string& name, const TokenizeOptions& options) {
  const std::string format = options.format.value_or("");
  const auto has = [&](std::string_view ending) { return name.ends_with(ending); };
  if (has(".parquet"))
    fail(Exit::usage,
         "{} is Parquet, which is not read: python3 -c \"import pandas; pandas.read_parquet('{}').to_json('{}.jsonl', "
         "orient='records', lines=True)\" converts it",
         name, name, name.substr(0, name.size() - 8));
  if (has(".json") && format != "text")
    fail(Exit::usage,
         "{} may be one JSON list: jq -c '.[]' {} > {}l makes a line of each record (--format text takes "
         "it as plain text)",
         name, name, name);
  if (format == "csv" || (format.empty() && has(".csv"))) return {name, InputKind::comma_table};
  if (format == "tsv" || (format.empty() && has(".tsv"))) return {name, InputKind::tab_table};
  if (has(".csv")) return {name, InputKind::comma_table};
  if (has(".tsv")) return {name, InputKind::tab_table};
  const bool records = !format.empty() && format != "text";
  return {name, has(".jsonl") || records || (name == "-" && options.field) ? InputKind::lines : InputKind::plain};
}

// What the first record says, if --format does not.
DataFormat format_of(const TokenizeOptions& options, DocumentReader& reader) {
  if (options.format && !is_table(*options.format)) return *text::data_format(*options.format);
  const DocumentPart* part = reader.peek();
  for (DocumentPart empty; part && part->kind != InputKind::plain && !text::first_record(*part); part = reader.peek())
    reader.next(empty);
  const auto record = part ? text::first_record(*part) : std::nullopt;
  if (!record || options.field) return DataFormat::text;
  try {
    return text::format_of(*record);
  } catch (const text::RecordFault& fault) {
    fail(Exit::corrupt, "{}, line {}: {}", part->name, part->line, fault.message);
  }
}

// What is made of each record; says what was found.
RecordRules rules_of(const TokenizeOptions& options, DataFormat format, bool is_text,
                     const std::optional<text::ChatTemplate>& made) {
  RecordRules rules{.format = format, .field = options.field.value_or("text"), .add_special = options.add_special};
  if (made && format != DataFormat::text && format != DataFormat::completion) rules.made = &*made;
  if (!rules.made && rules.templated())
    fail(Exit::usage,
         "{} need a chat template, and --tokenizer {} has none (chat_template.jinja, or chat_template in "
         "tokenizer_config.json): give --chat-template FILE",
         format == DataFormat::chat ? "messages" : "conversations", options.tokenizer);
  if (options.chat_template && !rules.made)
    fail(Exit::usage, "--chat-template is for conversations, and the input is {}", text::name_of(format));
  const bool answers = rules.templated() && format != DataFormat::alpaca;
  rules.train_on = answers ? text::TrainOn::assistant : text::TrainOn::completion;
  if (format == DataFormat::text) rules.train_on = text::TrainOn::all;
  if (options.train_on) {
    rules.train_on = *text::train_on(*options.train_on);
    if (format == DataFormat::text && rules.train_on != text::TrainOn::all)
      fail(Exit::usage, "--train-on {} is for conversations and completions, and the input is text", *options.train_on);
  }
  if (rules.templated() && (options.eot || options.no_eot || options.add_special))
    fail(Exit::usage, "--{} has no place here: a conversation is what its template writes, with nothing around it",
         options.eot      ? "eot"
         : options.no_eot ? "no-eot"
                          : "add-special");
  if (!is_text) {
    std::string what(text::name_of(format));
    if (rules.made) what += fmt::format(", written by {}", made->name());
    say("{}: {}; {}", options.inputs.front(), what,
        rules.train_on == text::TrainOn::all ? std::string("every token counts as a label")
                                             : fmt::format("trained on: {}", text::name_of(rules.train_on)));
  }
  return rules;
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  std::vector<NamedFile> files;
  std::vector<DocumentInput> inputs;
  for (const std::string& name : options.inputs) {
    if (name != "-") files.push_back({"tokenize", name});
    inputs.push_back(input_of(name, options));
  }
  TokenOutput output(options.out, files, options.force);
  const auto tokenizer = text::load_tokenizer(options.tokenizer);
  // A template goes around whole documents.
  DocumentReader reader(inputs, !options.add_special, *tokenizer);
  const DataFormat format = format_of(options, reader);
  const bool is_text = inputs.front().kind == InputKind::plain;
  std::optional<text::ChatTemplate> made;
  if (options.chat_template || format == DataFormat::chat || format == DataFormat::sharegpt ||
      format == DataFormat::alpaca)
    made = text::ChatTemplate::find(options.tokenizer, options.chat_template, *tokenizer);
  RecordRules rules = rules_of(options, format, is_text, made);
  const bool whole = format == DataFormat::text;
  const auto is_one = [](const DocumentInput& input) { return input.kind == InputKind::plain; };
  std::optional<std::uint32_t> end;
  if (!rules.templated())
    end = end_token(options, *tokenizer, !whole || inputs.size() > 1 || !is_one(inputs.front()) || options.field);
  if (!whole) rules.end = end;
  TokenWriter& writer =
      output.open(*tokenizer, whole ? end : std::nullopt, rules.train_on != text::TrainOn::all || rules.templated());
  if (rules.templated()) output.written_by(*rules.made);
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  std::uint64_t bytes = 0;
  for (const NamedFile& file : files) {
    std::error_code none;
    const auto size = std::filesystem::file_size(file.path, none);
    bytes += none ? 0 : size;
  }
  if (files.size() < options.inputs.size()) bytes = 0;  // standard input is one of them
  Conveyor conveyor(reader, writer, bytes);
  conveyor.run(static_cast<std::size_t>(std::max(threads, 1)), *tokenizer, rules);
  output.commit();
  if (options.eot && whole && !writer.separated())
    note(fmt::format("--eot {} had no effect: the input is one document, and it goes between two", *options.eot));
  if (conveyor.unlabelled() > 0)
    say("{} of {} documents hold nothing to train on: runs leave them out", conveyor.unlabelled(), writer.documents());
  return 0;
}

}  // namespace strata::launcher
