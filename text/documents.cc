#include "text/documents.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"

namespace strata::text {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 18;
constexpr std::size_t kMaxPart = std::size_t{1} << 30;

}  // namespace

class DocumentReader::Input {
 public:
  explicit Input(const std::string& name) : name_(name == "-" ? "standard input" : name) {
    if (name != "-") file_.reset(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (name != "-" && file_.get() < 0) {
      fail(errno == ENOENT || errno == ENOTDIR ? Exit::usage : Exit::failed, "{} cannot be opened: {}", name_,
           std::strerror(errno));
    }
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

DocumentReader::DocumentReader(std::vector<std::string> inputs, bool stdin_jsonl, bool cut, const Tokenizer& tokenizer)
    : inputs_(std::move(inputs)), stdin_jsonl_(stdin_jsonl), cut_(cut), tokenizer_(tokenizer) {}

DocumentReader::~DocumentReader() = default;

Tokenizer::TextCut DocumentReader::end_of_part() const {
  if (input_->at_end()) return {text_.size(), text_.size()};
  if (!jsonl_) return cut_ ? tokenizer_.safe_cut(text_, text_.size()) : Tokenizer::TextCut{};
  const std::size_t newline = text_.rfind('\n'), end = newline == std::string::npos ? 0 : newline + 1;
  return {end, end};
}

bool DocumentReader::next(DocumentPart& part) {
  for (;;) {
    if (!input_) {
      if (next_input_ == inputs_.size()) return false;
      const std::string& name = inputs_[next_input_++];
      input_ = std::make_unique<Input>(name);
      jsonl_ = name.ends_with(".jsonl") || (name == "-" && stdin_jsonl_);
      begins_ = true;
      line_ = 1;
      offset_ = 0;
      wanted_ = kPart;
    }
    input_->read(text_, wanted_);
    const auto [end, next] = end_of_part();
    if (end == 0 && !input_->at_end()) {
      if (text_.size() >= kMaxPart) {
        fail(Exit::usage, "{}, offset {}: 1 GiB without {}: the tokenizer {} needs such parts", input_->name(), offset_,
             jsonl_ ? "the end of a line" : "a place where text may be cut", tokenizer_.name());
      }
      wanted_ = 2 * wanted_;  // so that looking again costs no more than reading
      continue;
    }
    part = {.name = input_->name(),
            .jsonl = jsonl_,
            .begins = begins_,
            .ends = input_->at_end(),
            .line = line_,
            .offset = offset_,
            .text = text_.substr(0, end)};
    text_.erase(0, next);
    offset_ += next;
    if (jsonl_) line_ += static_cast<std::uint64_t>(std::count(part.text.begin(), part.text.end(), '\n'));
    begins_ = false;
    wanted_ = std::max(kPart, text_.size() + 1);
    if (input_->at_end()) input_.reset();
    return true;
  }
}

}  // namespace strata::text
