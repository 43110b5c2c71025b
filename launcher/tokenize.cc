#include "launcher/tokenize.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/thread.h"
#include "launcher/printable.h"
#include "launcher/token_output.h"
#include "text/documents.h"
#include "text/token_writer.h"
#include "text/tokenizer.h"

namespace strata::launcher {
namespace {

using text::DocumentPart;
using text::DocumentReader;
using text::Tokenizer;
using text::TokenWriter;

// Tokens of a part, and where documents begin in them.
struct Tokens {
  std::vector<std::uint32_t> ids;
  std::vector<std::size_t> begins;
};

// Turns parts into tokens; one for each thread.
class PartTokenizer {
 public:
  PartTokenizer(const Tokenizer& tokenizer, std::string_view field, bool add_special)
      : tokenizer_(tokenizer), field_(field), add_special_(add_special), workspace_(tokenizer.workspace()) {}

  void run(const DocumentPart& part, Tokens& out) {
    out.ids.clear();
    out.begins.clear();
    if (part.jsonl) return lines(part, out);
    if (part.begins) out.begins.push_back(0);
    tokenizer_.encode(part.text, add_special_, *workspace_, out.ids);
  }

 private:
  void lines(const DocumentPart& part, Tokens& out) {
    std::uint64_t number = part.line;
    for (std::size_t at = 0; at < part.text.size(); ++number) {
      const std::size_t end = std::min(part.text.find('\n', at), part.text.size());
      const std::string_view line = std::string_view(part.text).substr(at, end - at);
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
        out.begins.push_back(out.ids.size());
        tokenizer_.encode(text_of(line, part, number, at), add_special_, *workspace_, out.ids);
      }
      at = end + 1;
    }
  }
  std::string_view text_of(std::string_view line, const DocumentPart& part, std::uint64_t number, std::size_t at) {
    const auto bad = [&](std::string_view expected, std::string_view found) {
      fail(Exit::corrupt, "{}, line {}, offset {}: expected {}, found {}", part.name, number, part.offset + at,
           expected, found);
    };
    constexpr std::string_view kMark = "\xef\xbb\xbf", kLittle = "\xff\xfe", kBig = "\xfe\xff";
    if (line.starts_with(kMark))
      bad("a JSON object in a line", "a byte order mark (EF BB BF): take it out with sed 's/^\\xef\\xbb\\xbf//'");
    if (line.starts_with(kLittle) || line.starts_with(kBig))
      bad("JSON in UTF-8", "the byte order mark of UTF-16: convert it with iconv -f UTF-16 -t UTF-8");
    simdjson::dom::element root, value;
    const auto error = parser_.parse(line.data(), line.size()).get(root);
    if (error != simdjson::SUCCESS) bad("a JSON object in a line", simdjson::error_message(error));
    std::string_view text;
    const bool there = root[field_].get(value) == simdjson::SUCCESS;
    if (!there || value.get_string().get(text) != simdjson::SUCCESS) {
      bad(fmt::format("a string \"{}\" in each line", field_), there ? "something else" : "none");
    }
    return text;
  }

  const Tokenizer& tokenizer_;
  std::string_view field_;
  bool add_special_;
  std::unique_ptr<Tokenizer::Workspace> workspace_;
  simdjson::dom::parser parser_;
};

// Threads take parts in turn, and write what they made of them in the order of the parts.
class Conveyor {
 public:
  Conveyor(DocumentReader& reader, TokenWriter& writer) : reader_(reader), writer_(writer) {}

  void run(std::size_t threads, const Tokenizer& tokenizer, std::string_view field, bool add_special) {
    const auto work = [&] {
      PartTokenizer part_tokenizer(tokenizer, field, add_special);
      DocumentPart part;
      Tokens tokens;
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

 private:
  // One part; false where there is none any more, or something went wrong with an earlier one.
  bool step(PartTokenizer& part_tokenizer, DocumentPart& part, Tokens& tokens) {
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
        part_tokenizer.run(part, tokens);
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
  void write(const Tokens& tokens) {
    std::size_t done = 0;
    const auto ids = std::span(tokens.ids);
    for (const std::size_t begin : tokens.begins) {
      writer_.add(ids.subspan(done, begin - done));
      writer_.begin_document();
      done = begin;
    }
    writer_.add(ids.subspan(done));
  }

  DocumentReader& reader_;
  TokenWriter& writer_;
  std::mutex reading_, writing_;
  std::condition_variable turn_;
  std::uint64_t taken_ = 0, written_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
};

std::optional<std::uint32_t> separator(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  if (options.eot && options.no_eot) fail(Exit::usage, "--eot and --no-eot contradict each other");
  if (options.no_eot) return std::nullopt;
  if (options.eot) {
    const auto id = tokenizer.id_of(*options.eot);
    if (!id) fail(Exit::usage, "--eot {}: the tokenizer {} has no such token", *options.eot, tokenizer.name());
    return id;
  }
  const bool many = options.inputs.size() > 1 || options.field || options.inputs.front().ends_with(".jsonl");
  if (!tokenizer.end_of_text() && many && tokenizer.name() != "byte") {
    fail(Exit::usage,
         "the tokenizer {} names no end-of-text token to put between documents: give --eot TOKEN, or --no-eot",
         tokenizer.name());
  }
  return tokenizer.end_of_text();
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  std::vector<NamedFile> inputs;
  for (const std::string& name : options.inputs)
    if (name != "-") inputs.push_back({"tokenize", name});
  TokenOutput output(options.out, inputs, options.force);
  const auto tokenizer = text::load_tokenizer(options.tokenizer);
  TokenWriter& writer = output.open(*tokenizer, separator(options, *tokenizer), false);
  // A template goes around whole documents.
  DocumentReader reader(options.inputs, options.field.has_value(), !options.add_special, *tokenizer);
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  Conveyor(reader, writer)
      .run(static_cast<std::size_t>(std::max(threads, 1)), *tokenizer, options.field ? *options.field : "text",
           options.add_special);
  output.commit();
  if (options.eot && !writer.separated())
    note(fmt::format("--eot {} had no effect: the input is one document, and it goes between two", *options.eot));
  return 0;
}

}  // namespace strata::launcher
