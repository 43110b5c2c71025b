#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/ordered_pipeline.h"
#include "launcher/commands/tokenize/tokenize_labels.h"
#include "launcher/screen/printable.h"
#include "launcher/token_output.h"
#include "runtime/data/files/tokens.h"
#include "text/chat/chat_template.h"
#include "text/chat/part_tokenizer.h"
#include "text/chat/record.h"
#include "text/chat/table.h"
#include "text/chat/template_coverage.h"
#include "text/documents.h"
#include "text/input/input_bytes.h"
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

// The token that ends a document: that of --eot, or the tokenizer's own.
std::optional<std::uint32_t> end_token(const TokenizeOptions& options, const Tokenizer& tokenizer, bool needed) {
  if (options.eot && options.no_eot)
    fail(Exit::usage, "--eot and --no-eot contradict each other: leave one of them out");
  if (options.no_eot) return std::nullopt;
  if (options.eot) {
    const auto id = tokenizer.id_of(*options.eot);
    if (!id)
      fail(Exit::usage, "--eot {}: the tokenizer {} has no such token: name one that it has", *options.eot,
           tokenizer.name());
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

// Whether the first line of a file named .json contains a complete object, as in JSONL. Returns false for a list, and
// for an object that spans several lines.
bool begins_with_object_in_line(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::size_t end = text.find('\n', begin);
  if (end == text.npos) return false;
  std::string_view line = text.substr(begin, end - begin);
  line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  return line.size() > 2 && line.starts_with('{') && line.ends_with('}');
}

// Refuses a file named .json whose first line is not a complete object.
[[noreturn]] void refuse_json(const std::string& name, std::string_view head) {
  const std::string file = shell_word(name), lines = shell_word(name + "l");
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  if (head.starts_with('['))
    fail(Exit::usage,
         "{} may be one JSON list: jq -c '.[]' {} > {} makes a line of each record (--format text takes it as plain "
         "text)",
         name, file, lines);
  if (head.starts_with('{'))
    fail(Exit::usage,
         "{} begins with a JSON object that does not end within its line, or within the first 4,096 bytes: jq -c . {} "
         "> {} makes a line of each record (--format text takes it as plain text)",
         name, file, lines);
  fail(
      Exit::usage,
      "{} is not known to hold JSON objects, one per line: give them in a file named .jsonl (--format text takes it as "
      "plain text)",
      name);
}

// The kind of an input, from --format or otherwise from its name. head: its first bytes.
DocumentInput input_of(const std::string& name, std::string_view head, const TokenizeOptions& options) {
  const std::string format = options.format.value_or("");
  if (format == "csv") return {name, InputKind::comma_table};
  if (format == "tsv") return {name, InputKind::tab_table};
  const auto named = text::kind_of_name(name);
  if (named == InputKind::comma_table || named == InputKind::tab_table) return {name, *named};
  if (name != "-" && text::content_extension(name) == "json" && format != "text") {
    if (begins_with_object_in_line(head)) return {name, InputKind::lines};
    refuse_json(name, head);
  }
  const bool records = !format.empty() && format != "text";
  return {name, named == InputKind::lines || records || (name == "-" && (options.field || !options.labels.empty()))
                    ? InputKind::lines
                    : InputKind::plain};
}

// The format of records, from --format or otherwise from the first record.
DataFormat format_of(const TokenizeOptions& options, DocumentReader& reader) {
  if (options.format && !is_table(*options.format)) return *text::data_format(*options.format);
  const DocumentPart* part = reader.peek();
  for (DocumentPart empty; part && part->kind != InputKind::plain && !text::first_record(*part); part = reader.peek())
    reader.next(empty);
  const auto record = part ? text::first_record(*part) : std::nullopt;
  if (part && part->kind == InputKind::plain && !options.format && part->text.starts_with("{\""))
    note(
        fmt::format("{} begins like JSON, but is read as plain text: --format chat, or the format of its records, "
                    "reads each line as a record",
                    part->name));
  if (part && part->kind == InputKind::plain && !options.format && has_tag_columns(part->text))
    note(fmt::format("{} has a word and its tag in each line, but is read as plain text: {}", part->name,
                     conversion_of_columns(part->name)));
  if (!record || options.field) return DataFormat::text;
  try {
    return text::format_of(*record,
                           part->kind == InputKind::lines
                               ? "give --field NAME for the one that holds text"
                               : fmt::format("give --field NAME for the one that holds text; {}", text::kHeaderNames));
  } catch (const text::RecordFault& fault) {
    fail(Exit::corrupt, "{}, line {}: {}", part->name, part->line, fault.message);
  }
}

// Whether the first record is a conversation that names its prompt. `format`: the format of the records.
bool begins_with_prompt(DataFormat format, DocumentReader& reader) {
  if (format != DataFormat::chat) return false;
  const DocumentPart* part = reader.peek();
  const auto record = part ? text::first_record(*part) : std::nullopt;
  return record && !record->find("messages") && record->find("prompt") && record->find("completion");
}

// How each record is tokenized. Prints which template and tokens were found.
RecordRules rules_of(const TokenizeOptions& options, DataFormat format, bool is_text,
                     const std::optional<text::ChatTemplate>& made, bool has_prompts) {
  RecordRules rules{.format = format,
                    .found = (!options.format || is_table(*options.format)) && !options.field,
                    .field_given = options.field.has_value(),
                    .field = options.field.value_or("text"),
                    .add_special = options.add_special};
  if (made && format != DataFormat::text && format != DataFormat::completion) rules.made = &*made;
  if (!rules.made && rules.templated())
    fail(Exit::usage,
         "{} need a chat template, but --tokenizer {} has none (chat_template.jinja, or chat_template in "
         "tokenizer_config.json): give --chat-template FILE",
         format == DataFormat::chat ? "messages" : "conversations", options.tokenizer);
  if (options.chat_template && !rules.made)
    fail(Exit::usage, "--chat-template is for conversations, but the input is {}", text::name_of(format));
  const bool answers = rules.templated() && format != DataFormat::alpaca;
  rules.train_on = answers ? text::TrainOn::assistant : text::TrainOn::completion;
  rules.completion_alone = answers && !options.train_on;
  if (format == DataFormat::text) rules.train_on = text::TrainOn::all;
  if (options.train_on) {
    rules.train_on = *text::train_on(*options.train_on);
    if (format == DataFormat::text && rules.train_on != text::TrainOn::all)
      fail(Exit::usage, "--train-on {} is for conversations and completions, but the input is text", *options.train_on);
  }
  if (rules.templated() && (options.eot || options.no_eot || options.add_special))
    fail(Exit::usage, "--{} does not apply to conversations: their template writes the complete text",
         options.eot      ? "eot"
         : options.no_eot ? "no-eot"
                          : "add-special");
  if (!is_text) {
    std::string what(text::name_of(format));
    if (rules.made) what += fmt::format(", written by {}", made->name());
    say("{}: {}; {}", options.inputs.front(), what,
        rules.train_on == text::TrainOn::all
            ? std::string("every token counts as a label")
            : fmt::format(
                  "trained on: {}",
                  text::name_of(rules.completion_alone && has_prompts ? text::TrainOn::completion : rules.train_on)));
  }
  return rules;
}

void write(const PartTokens& tokens, TokenWriter& writer) {
  const auto add = [&](std::size_t from, std::size_t to) {
    const auto ids = std::span(tokens.ids).subspan(from, to - from);
    if (tokens.counts.empty())
      writer.add(ids);
    else
      writer.add(ids, std::span(tokens.counts).subspan(from, to - from));
  };
  std::size_t done = 0;
  for (const std::size_t begin : tokens.begins) {
    add(done, begin);
    writer.begin_document();
    done = begin;
  }
  add(done, tokens.ids.size());
}

[[noreturn]] void refuse_without_labels(const RecordRules& rules, const std::set<std::string>& roles) {
  if (!rules.templated())
    fail(Exit::usage,
         "no trainable tokens, because all completions are empty: check \"completion\" (or \"output\") in the records");
  fail(Exit::usage,
       "no trainable tokens: --train-on {} trains on what the role \"assistant\" says, unless \"train\" or \"weight\" "
       "of a turn says otherwise (roles found: {}); rename the roles, or use --train-on all",
       text::name_of(rules.train_on), fmt::join(roles, ", "));
}

// Refuses a token file, which its sidecar identifies. Other files that are not text are refused when they are read.
void refuse_token_file(const std::filesystem::path& path) {
  bool made = false;
  try {
    made = runtime::read_sidecar(path).has_value();
  } catch (const Error&) {  // a JSON file next to a text is not necessarily a sidecar
  }
  if (made)
    fail(Exit::usage,
         "{} is a token file, as {} says: it is already tokenized; data.train takes it, and strata inspect "
         "shows what it holds",
         path.string(), runtime::sidecar_path(path).string());
}

// Throws Error{usage} for options that cannot be combined with --labels, or that need it.
void require_compatible_options(const TokenizeOptions& options) {
  const auto refuse = [](bool given, const char* name, const char* where) {
    if (given) fail(Exit::usage, "--{} cannot be used {}", name, where);
  };
  const bool labels = !options.labels.empty();
  refuse(labels && options.train_on, "train-on", "with --labels");
  refuse(labels && options.chat_template, "chat-template", "with --labels");
  refuse(labels && (options.eot || options.no_eot), options.eot ? "eot" : "no-eot",
         "with --labels: the tokenizer's template says where a text ends");
  refuse(labels && options.format && !is_table(*options.format), "format",
         "with --labels unless it is csv or tsv: --field names the text");
  refuse(!labels && options.pair, "pair", "without --labels");
  refuse(!labels && options.max_length, "max-length",
         "without --labels: a run packs documents into data.seq_len, and data.long decides about longer ones");
  refuse(!labels && options.truncation, "truncation", "without --labels");
  refuse(labels && options.truncation && !options.max_length, "truncation", "without --max-length");
  const std::string text = options.field.value_or("text");
  for (auto label = options.labels.begin(); label != options.labels.end(); ++label) {
    if (*label == text || options.pair == *label)
      fail(Exit::usage, "--labels {} names the field of a text: name the field of the label", *label);
    if (std::find(options.labels.begin(), label, *label) != label)
      fail(Exit::usage, "--labels names {} twice: name each field once", *label);
  }
  if (options.pair == text) fail(Exit::usage, "--pair {} names the first text: name the second one's field", text);
}

// The tokens that the tokenizer's template puts before a text.
std::string written_before(const text::Tokenizer& tokenizer) {
  std::vector<std::uint32_t> ids;
  for (const auto& piece : tokenizer.text_template().single) {
    if (piece.kind != text::TextTemplate::Kind::token) break;
    ids.push_back(piece.id);
  }
  return tokenizer.decode(ids, false);
}

}  // namespace

int tokenize(const TokenizeOptions& options) {
  require_compatible_options(options);
  std::vector<NamedFile> files;
  std::vector<DocumentInput> inputs;
  bool compressed = false;
  for (const std::string& name : options.inputs)
    if (name != "-") files.push_back({"tokenize", name});
  TokenOutput output(options.out, files, options.force);
  for (const NamedFile& file : files) refuse_token_file(file.path);
  for (const std::string& name : options.inputs) {
    const text::InputHead head = text::look_at_input(name);
    compressed = compressed || head.compression != text::Compression::none;
    inputs.push_back(input_of(name, head.text, options));
  }
  // The number of bytes to tokenize; 0 if unknown.
  const std::uint64_t bytes = compressed ? 0 : bytes_of(files, options.inputs.size());
  const auto tokenizer = text::load_tokenizer(options.tokenizer);
  print_notes(tokenizer->notes(), options.tokenizer);
  if (!options.labels.empty()) return tokenize_labels(options, inputs, bytes, *tokenizer, output);
  // The tokenizer's template goes around whole documents, so texts must not be cut.
  DocumentReader reader(inputs, !options.add_special, *tokenizer);
  const DataFormat format = format_of(options, reader);
  const bool is_text = inputs.front().kind == InputKind::plain;
  std::optional<text::ChatTemplate> made;
  if (options.chat_template || format == DataFormat::chat || format == DataFormat::sharegpt ||
      format == DataFormat::alpaca)
    made = text::ChatTemplate::find(options.tokenizer, options.chat_template, *tokenizer);
  RecordRules rules = rules_of(options, format, is_text, made, begins_with_prompt(format, reader));
  const bool whole = format == DataFormat::text;
  const auto is_one = [](const DocumentInput& input) { return input.kind == InputKind::plain; };
  std::optional<std::uint32_t> end;
  if (!rules.templated())
    end = end_token(options, *tokenizer, !whole || inputs.size() > 1 || !is_one(inputs.front()) || options.field);
  if (!whole) rules.end = end;
  const bool masked = rules.train_on != text::TrainOn::all || rules.templated();
  TokenWriter& writer = output.open(*tokenizer, whole ? end : std::nullopt, masked);
  if (rules.templated()) {
    output.written_by(*rules.made);
    print_notes(rules.made->notes());
  }
  text::RecordCounts seen;
  OrderedPipeline<PartTokens> pipeline(reader, bytes, [&](const PartTokens& tokens) {
    write(tokens, writer);
    seen.add(tokens.seen);
  });
  pipeline.run(threads_of(options), [&] {
    auto maker = std::make_shared<PartTokenizer>(*tokenizer, rules);
    return [maker](const text::DocumentPart& part, PartTokens& tokens) { maker->run(part, tokens); };
  });
  if (masked && writer.count() > 0 && writer.labels() == 0) refuse_without_labels(rules, seen.roles);
  output.commit();
  for (const std::string& sentence : reader.notes()) note(sentence);
  if (options.eot && whole && !writer.separated())
    note(fmt::format("--eot {} had no effect: it separates documents, but the input is a single one", *options.eot));
  for (const std::string& sentence : seen.notes(rules.made ? rules.made->name() : "", writer.documents()))
    note(sentence);
  if (!rules.templated() && !rules.add_special && !is_one(inputs.front()))
    if (const std::string first = written_before(*tokenizer); !first.empty())
      note(fmt::format(
          "these documents begin without {}, which the tokenizer puts before a text (a prompt, for example): "
          "--add-special adds it",
          first));
  if (seen.unlabelled > 0)
    say("{} of {} {} nothing to train on: runs leave {} out", seen.unlabelled, counted(writer.documents(), "document"),
        for_count(seen.unlabelled, "holds", "hold"), for_count(seen.unlabelled, "it", "them"));
  return 0;
}

}  // namespace strata::launcher
