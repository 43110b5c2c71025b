#include "text/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/chat/table.h"
#include "text/json/json.h"

namespace strata::text {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 18;
constexpr std::size_t kMaxPart = std::size_t{1} << 30;
// The share of invalid UTF-8 in a plain text is first checked after this many bytes, so that a wrong file is not read
// to its end.
constexpr std::uint64_t kFirstLook = std::uint64_t{1} << 20;

bool is_table(InputKind kind) {
  return kind == InputKind::comma_table || kind == InputKind::tab_table;
}

}  // namespace

std::optional<InputKind> kind_of_name(std::string_view name) {
  if (name == "-") return std::nullopt;
  const std::string extension = content_extension(name);
  if (extension == "jsonl" || extension == "ndjson" || extension == "jsonlines") return InputKind::lines;
  if (extension == "csv") return InputKind::comma_table;
  if (extension == "tsv") return InputKind::tab_table;
  return std::nullopt;
}

DocumentReader::DocumentReader(std::vector<DocumentInput> inputs, bool cut, const Tokenizer& tokenizer)
    : inputs_(std::move(inputs)), cut_(cut), tokenizer_(tokenizer) {}

Tokenizer::TextCut DocumentReader::end_of_part() {
  if (input_->at_end()) return {text_.size(), text_.size()};
  if (kind_ == InputKind::plain) return cut_ ? tokenizer_.safe_cut(text_, text_.size()) : Tokenizer::TextCut{};
  if (kind_ == InputKind::lines) {
    const std::size_t newline = text_.rfind('\n'), end = newline == std::string::npos ? 0 : newline + 1;
    return {end, end};
  }
  for (std::size_t end = record_; (end = record_end(text_, record_, separator_)) != std::string::npos;) record_ = end;
  return {record_, record_};
}

bool DocumentReader::next(DocumentPart& part) {
  if (!ahead_) return read(part);
  part = *std::exchange(ahead_, std::nullopt);
  return true;
}

const DocumentPart* DocumentReader::peek() {
  DocumentPart part;
  if (!ahead_ && read(part)) ahead_ = std::move(part);
  return ahead_ ? &*ahead_ : nullptr;
}

void DocumentReader::open(const DocumentInput& input) {
  input_.emplace(input.name);
  kind_ = input.kind;
  separator_ = kind_ == InputKind::tab_table ? '\t' : ',';
  utf8_.reset();
  if (kind_ == InputKind::plain) utf8_.emplace();
  looked_ = false;
  begins_ = true;
  header_.clear();
  record_ = 0;
  line_ = 1;
  offset_ = 0;
  wanted_ = kPart;
}

// Takes the header of a table from the text read so far; false if more must be read first.
bool DocumentReader::read_header() {
  if (!begins_ || !is_table(kind_)) return true;
  std::size_t end = record_end(text_, 0, separator_);
  if (end == std::string::npos && !input_->at_end()) return false;
  // Like Excel, accept a line "sep=;", which sets the separator and precedes the header.
  constexpr std::string_view kSeparator = "sep=";
  const std::string_view line = std::string_view(text_).substr(0, std::min(end, text_.size()));
  const std::string_view rest = line.substr(std::min(line.find_last_not_of("\r\n") + 1, line.size()));
  const std::string_view given = line.substr(0, line.size() - rest.size());
  std::size_t begin = 0;
  if (given.starts_with(kSeparator) && given.find(separator_, kSeparator.size() + 1) == given.npos) {
    const char separator = given.size() > kSeparator.size() ? given[kSeparator.size()] : '"';
    if (given.size() != kSeparator.size() + 1 || separator == '"')
      fail(Exit::corrupt,
           "{}, line 1: {} names no separator: write one ASCII character, other than a quote, after \"sep=\" "
           "(a tab is written unescaped), or leave the line out",
           input_->name(), shortened(given, 40));
    const std::size_t header = record_end(text_, line.size(), separator);
    if (header == std::string::npos && !input_->at_end()) return false;
    separator_ = separator;
    begin = line.size();
    end = header;
  }
  end = std::min(end, text_.size());
  header_ = text_.substr(begin, end - begin);
  line_ +=
      static_cast<std::uint64_t>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  text_.erase(0, end);
  offset_ = end;
  begins_ = false;
  return true;
}

// Counts the invalid UTF-8 in a plain text, which is read as U+FFFD, except by the byte tokenizer.
void DocumentReader::look_at_text(std::string_view text) {
  if (!utf8_) return;
  utf8_->add(text);
  if (input_->at_end()) utf8_->finish();
  if (input_->at_end() ? utf8_->wrong() == 0 : looked_ || utf8_->bytes() < kFirstLook) return;
  looked_ = true;
  const bool as_they_are = tokenizer_.name() == "byte";
  const double share = 100.0 * static_cast<double>(utf8_->wrong()) / static_cast<double>(utf8_->bytes());
  if (share > 1 && !as_they_are)
    fail(Exit::corrupt,
         "{}: {} of {} bytes ({:.1f}%) are not UTF-8: convert it, with iconv -f WINDOWS-1252 -t UTF-8 if it comes from "
         "an older Windows, or from its actual encoding",
         input_->name(), utf8_->wrong(), utf8_->bytes(), share);
  if (input_->at_end())
    notes_.push_back(fmt::format("{}: {} of {} bytes {} not UTF-8, and {}", input_->name(), utf8_->wrong(),
                                 utf8_->bytes(), utf8_->wrong() == 1 ? "is" : "are",
                                 as_they_are ? "byte takes them unchanged" : "read as U+FFFD"));
}

void DocumentReader::close() {
  if (input_->encoding() != Encoding::utf8)
    notes_.push_back(
        fmt::format("{} was read as {}, as its byte order mark says", input_->name(), name_of(input_->encoding())));
  input_.reset();
}

bool DocumentReader::read(DocumentPart& part) {
  for (;;) {
    if (!input_) {
      if (next_input_ == inputs_.size()) return false;
      open(inputs_[next_input_++]);
    }
    const std::size_t before = text_.size();
    input_->read(text_, wanted_);
    look_at_text(std::string_view(text_).substr(before));
    const bool headed = read_header();
    const auto [end, next] = headed ? end_of_part() : Tokenizer::TextCut{};
    if (end == 0 && !input_->at_end()) {
      if (text_.size() >= kMaxPart) {
        fail(Exit::usage, "{}, offset {}: there is no {} within 1 GiB, which the tokenizer {} requires", input_->name(),
             offset_, kind_ == InputKind::plain ? "place where text may be cut" : "end of a line", tokenizer_.name());
      }
      wanted_ = 2 * wanted_;  // doubled, so that repeated searches cost no more than reading
      continue;
    }
    part = {.name = input_->name(),
            .kind = kind_,
            .begins = begins_,
            .ends = input_->at_end(),
            .header = header_,
            .separator = separator_,
            .line = line_,
            .offset = offset_,
            .text = text_.substr(0, end)};
    text_.erase(0, next);
    record_ = 0;
    offset_ += next;
    if (kind_ != InputKind::plain)
      line_ += static_cast<std::uint64_t>(std::count(part.text.begin(), part.text.end(), '\n'));
    begins_ = false;
    wanted_ = std::max(kPart, text_.size() + 1);
    if (input_->at_end()) close();
    return true;
  }
}

}  // namespace strata::text
