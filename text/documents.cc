#include "text/documents.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/files/input_file.h"
#include "text/chat/table.h"

namespace strata::text {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 18;
constexpr std::size_t kMaxPart = std::size_t{1} << 30;
char separator_of(InputKind kind) {
  return kind == InputKind::tab_table ? '\t' : ',';
}
constexpr std::string_view kMark = "\xef\xbb\xbf";  // that spreadsheets put before UTF-8

}  // namespace

class DocumentReader::Input {
 public:
  explicit Input(const std::string& name) : name_(name == "-" ? "standard input" : name) {
    if (name == "-") return;
    InputFile input(name, Pipes::handed_over);
    if (input.error != 0 && input.error != ENXIO)  // ENXIO: a socket
      fail(input.error == ENOENT || input.error == ENOTDIR ? Exit::usage : Exit::failed, "{} cannot be opened: {}",
           name_, std::strerror(input.error));
    if (input.file.get() < 0)
      fail(Exit::usage, "{} is not a regular file: text that comes out of a pipe is read from standard input (-)",
           name_);
    file_ = std::move(input.file);
  }

  const std::string& name() const { return name_; }
  bool at_end() const { return at_end_; }
  // Appends bytes until `text` has `size` of them, or the input ends.
  void read(std::string& text, std::size_t size) {
    std::size_t have = text.size();
    text.resize(std::max(size, have));
    while (have < text.size() && !at_end_) {
      const ssize_t n = ::read(file_.get() < 0 ? STDIN_FILENO : file_.get(), text.data() + have, text.size() - have);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        fail(errno == EISDIR ? Exit::usage : Exit::failed, "{} cannot be read: {} (errno {})", name_,
             std::strerror(errno), errno);
      }
      at_end_ = n == 0;
      have += static_cast<std::size_t>(n);
    }
    text.resize(have);
  }

 private:
  std::string name_;
  Descriptor file_;  // none: standard input
  bool at_end_ = false;
};

DocumentReader::DocumentReader(std::vector<DocumentInput> inputs, bool cut, const Tokenizer& tokenizer)
    : inputs_(std::move(inputs)), cut_(cut), tokenizer_(tokenizer) {}

DocumentReader::~DocumentReader() = default;

Tokenizer::TextCut DocumentReader::end_of_part() {
  if (input_->at_end()) return {text_.size(), text_.size()};
  if (kind_ == InputKind::plain) return cut_ ? tokenizer_.safe_cut(text_, text_.size()) : Tokenizer::TextCut{};
  if (kind_ == InputKind::lines) {
    const std::size_t newline = text_.rfind('\n'), end = newline == std::string::npos ? 0 : newline + 1;
    return {end, end};
  }
  for (std::size_t end = record_; (end = record_end(text_, record_, separator_of(kind_))) != std::string::npos;)
    record_ = end;
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
  input_ = std::make_unique<Input>(input.name);
  kind_ = input.kind;
  begins_ = true;
  header_.clear();
  record_ = 0;
  line_ = 1;
  offset_ = 0;
  wanted_ = kPart;
}

// Takes the header of a table out of what was read; false where more must be read first.
bool DocumentReader::read_header() {
  if (!begins_ || (kind_ != InputKind::comma_table && kind_ != InputKind::tab_table)) return true;
  std::size_t end = record_end(text_, 0, separator_of(kind_));
  if (end == std::string::npos && !input_->at_end()) return false;
  end = std::min(end, text_.size());
  header_ = text_.substr(0, end);
  if (header_.starts_with(kMark)) header_.erase(0, kMark.size());
  text_.erase(0, end);
  offset_ = end;
  line_ += static_cast<std::uint64_t>(std::count(header_.begin(), header_.end(), '\n'));
  begins_ = false;
  return true;
}

bool DocumentReader::read(DocumentPart& part) {
  for (;;) {
    if (!input_) {
      if (next_input_ == inputs_.size()) return false;
      open(inputs_[next_input_++]);
    }
    input_->read(text_, wanted_);
    const bool headed = read_header();
    const auto [end, next] = headed ? end_of_part() : Tokenizer::TextCut{};
    if (end == 0 && !input_->at_end()) {
      if (text_.size() >= kMaxPart) {
        fail(Exit::usage, "{}, offset {}: 1 GiB without {}: the tokenizer {} needs such parts", input_->name(), offset_,
             kind_ == InputKind::plain ? "a place where text may be cut" : "the end of a line", tokenizer_.name());
      }
      wanted_ = 2 * wanted_;  // so that looking again costs no more than reading
      continue;
    }
    part = {.name = input_->name(),
            .kind = kind_,
            .begins = begins_,
            .ends = input_->at_end(),
            .header = header_,
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
    if (input_->at_end()) input_.reset();
    return true;
  }
}

}  // namespace strata::text
