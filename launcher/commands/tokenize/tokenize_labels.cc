#include "launcher/commands/tokenize/tokenize_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/host/host.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/commands/ordered_pipeline.h"
#include "launcher/rank/cores.h"
#include "launcher/screen/printable.h"
#include "text/classes/class_tokenizer.h"
#include "text/input/input_bytes.h"

namespace strata::launcher {
namespace {

bool is_tag(std::string_view field) {
  constexpr std::string_view kPlaces = "BIELSUM";  // prefixes of BIO, BIOES, BILOU and similar schemes
  return field == "O" || (field.size() > 2 && field[1] == '-' && kPlaces.find(field[0]) != kPlaces.npos);
}

}  // namespace

using text::ClassRules;
using text::ClassTokenizer;
using text::ClassTokens;

std::size_t threads_of(const TokenizeOptions& options) {
  if (options.threads > 0) return static_cast<std::size_t>(options.threads);
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return static_cast<std::size_t>(cores_within(threads, cpu_quota()));
}

std::uint64_t bytes_of(const std::vector<NamedFile>& files, std::size_t inputs) {
  std::uint64_t bytes = 0;
  for (const NamedFile& file : files) {
    std::error_code none;
    const auto size = std::filesystem::file_size(file.path, none);
    bytes += none ? 0 : size;
  }
  return files.size() < inputs ? 0 : bytes;
}

int tokenize_labels(const TokenizeOptions& options, const std::vector<text::DocumentInput>& inputs, std::uint64_t bytes,
                    const text::Tokenizer& tokenizer, TokenOutput& output) {
  for (const text::DocumentInput& input : inputs)
    if (input.kind == text::InputKind::plain) {
      if (input.name != "-" && has_tag_columns(text::look_at_input(input.name).text))
        fail(Exit::usage, "{} has a word and its tag in each line, but --labels takes .jsonl, .csv or .tsv: {}",
             input.name, conversion_of_columns(input.name));
      fail(Exit::usage, "{} is plain text, which has no labels: --labels takes .jsonl, .csv or .tsv (or --format csv)",
           input.name);
    }
  ClassRules rules{.record = {.labels = options.labels, .text = options.field.value_or("text"), .pair = options.pair}};
  if (options.max_length) rules.max_length = static_cast<std::size_t>(*options.max_length);
  if (options.truncation) rules.truncation = *text::truncation(*options.truncation);
  text::require_possible(rules.truncation, options.pair.has_value());
  (void)ClassTokenizer(tokenizer, rules);  // refuses what the tokenizer cannot do before anything is opened

  text::DocumentReader reader(inputs, false, tokenizer);
  text::TokenWriter& writer = output.open(tokenizer, std::nullopt, false);
  text::BitFile& types = output.open_types();
  text::LabelWriter& labels = output.open_labels(rules);
  std::uint64_t cut = 0;
  OrderedPipeline<ClassTokens> pipeline(reader, bytes, [&](const ClassTokens& tokens) {
    for (std::size_t i = 0; i < tokens.begins.size(); ++i) {
      const std::size_t begin = tokens.begins[i];
      const std::size_t end = i + 1 < tokens.begins.size() ? tokens.begins[i + 1] : tokens.ids.size();
      writer.begin_document();
      writer.add(std::span(tokens.ids).subspan(begin, end - begin));
      for (std::size_t t = begin; t < end; ++t) types.add(tokens.types[t] != 0, 1);
      labels.add(tokens.labels[i], tokens.name);
    }
    cut += tokens.cut;
  });
  pipeline.run(threads_of(options), [&] {
    auto made = std::make_shared<ClassTokenizer>(tokenizer, rules);
    return [made](const text::DocumentPart& part, ClassTokens& tokens) { made->run(part, tokens); };
  });
  output.commit();
  for (const std::string& sentence : reader.notes()) note(sentence);
  if (cut > 0)
    say("{} of {} {} cut to {} tokens", cut, counted(writer.documents(), "document"), for_count(cut, "was", "were"),
        *rules.max_length);
  return 0;
}

bool has_tag_columns(std::string_view text) {
  constexpr std::size_t kLeast = 3, kMost = 200;
  constexpr std::string_view kSpaces = " \t\r";
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size() && lines < kMost;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end == text.size() && lines >= kLeast) break;  // this line may be incomplete
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    line = line.substr(0, line.find_last_not_of(kSpaces) + 1);
    if (line.empty() || line.starts_with("-DOCSTART-")) continue;
    const std::size_t before = line.find_last_of(kSpaces);
    if (before == line.npos || line.find_first_not_of(kSpaces) > before || !is_tag(line.substr(before + 1)))
      return false;
    ++lines;
  }
  return lines >= kLeast;
}

std::string conversion_of_columns(const std::string& name) {
  return fmt::format(
      "jq -Rsc 'gsub(\"\\r\"; \"\") | split(\"\\n[ \\t]*\\n\"; null)[] | [split(\"\\n\")[] | "
      "select(test(\"[^ \\t]\") and (startswith(\"-DOCSTART-\") | not)) | [splits(\"[ \\t]+\")]] | select(length > 0) "
      "| "
      "{{tokens: map(.[0]), tags: map(.[-1])}}' {} > {} makes a line of each sentence, which --field tokens --labels "
      "tags reads",
      shell_word(name), shell_word(name + ".jsonl"));
}

}  // namespace strata::launcher
