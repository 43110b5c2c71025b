#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/quantity.h"
#include "launcher/inspect/inspect.h"
#include "launcher/screen/printable.h"
#include "runtime/data/files/documents.h"
#include "runtime/data/files/tokens.h"
#include "text/tokenizer.h"
#include "text/unicode/utf8.h"

namespace strata::launcher {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 20;  // per document

std::unique_ptr<text::Tokenizer> tokenizer_of(const runtime::TokenFile& file,
                                              const std::optional<std::filesystem::path>& named) {
  const auto& sidecar = file.sidecar();
  const std::string its = sidecar ? sidecar->tokenizer : "";
  if (!named && its != "byte")
    fail(Exit::usage, "--show needs the tokenizer of {}{}: give --tokenizer DIR", file.path().string(),
         its.empty() ? "" : ", which is " + its);
  auto made = text::load_tokenizer(named ? *named : "byte");
  if (sidecar && !sidecar->tokenizer_hash.empty() && sidecar->tokenizer_hash != made->hash())
    fail(Exit::usage, "{} was made by another tokenizer ({}) than --tokenizer {}", file.path().string(), its,
         made->name());
  return made;
}

// Prints a text and marks the tokens that count as labels by colour or brackets.
class Shown {
 public:
  Shown(bool colour, std::ostream& out) : colour_(colour), out_(out) {}

  void add(std::string_view text, bool counts) {
    if (text.empty()) return;
    if (std::exchange(counts_, counts) != counts) mark();
    std::string whole;
    text::append_repaired(text, whole);
    out_ << printable(whole, true);
  }
  void finish() {
    if (std::exchange(counts_, false)) mark();
    out_ << '\n';
  }

 private:
  void mark() {
    if (colour_) {
      out_ << (counts_ ? "\x1b[1;32m" : "\x1b[0m");
    } else {
      out_ << (counts_ ? '[' : ']');
    }
  }

  bool colour_;
  std::ostream& out_;
  bool counts_ = false;
};

// Reads a file of labelled texts and returns each label as it is shown: "label": "match".
class LabelLines {
 public:
  explicit LabelLines(const runtime::TokenFile& file) {
    if (!file.sidecar() || !file.sidecar()->labels) return;
    path_ = runtime::labels_path(file.path());
    if (std::filesystem::exists(path_)) (void)open_input(path_, path_.string());  // refuses a pipe, which would block
    lines_.emplace(path_);
  }
  bool there() const { return lines_.has_value(); }
  // The label of the next text. Throws Error{corrupt} if the file has fewer lines than there are texts, or is gone.
  std::string next() {
    std::string line;
    if (!std::getline(*lines_, line) || line.size() < 2)
      fail(Exit::corrupt, "{} has no line for each document: tokenize again", path_.string());
    return printable(line.substr(1, line.size() - 2));
  }

 private:
  std::filesystem::path path_;
  std::optional<std::ifstream> lines_;
};

}  // namespace

int show_documents(const std::filesystem::path& path, std::uint64_t number,
                   const std::optional<std::filesystem::path>& tokenizer, bool colour, std::ostream& out) {
  const runtime::TokenFile file(path, std::nullopt);
  const auto decoder_of = tokenizer_of(file, tokenizer);
  const runtime::Documents documents(file);
  LabelLines labels(file);
  std::vector<std::uint32_t> ids;
  for (std::uint64_t i = 0; i < std::min(number, documents.count()); ++i) {
    const std::uint64_t begin = documents.begin(i), end = documents.begin(i + 1);
    fmt::print(out, "document {} of {}: {}, {}\n", i + 1, documents.count(), counted(end - begin, "token"),
               labels.there() ? labels.next() : fmt::format("{} of them labels", documents.labels(begin, end)));
    ids.resize(std::min(end - begin, kMaxTokens));
    file.read(begin, ids);
    text::StreamDecoder decoder(*decoder_of, false);
    Shown shown(colour, out);
    for (std::size_t token = 0; token < ids.size(); ++token)
      shown.add(decoder.add(ids[token]), !labels.there() && documents.counts(begin + token));
    shown.add(decoder.finish(), !labels.there() && !ids.empty() && documents.counts(begin + ids.size() - 1));
    shown.finish();
    if (ids.size() < end - begin) fmt::print(out, "... ({})\n", counted(end - begin - ids.size(), "more token"));
  }
  return 0;
}

}  // namespace strata::launcher
