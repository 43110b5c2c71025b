#include "launcher/commands/tokenize/tokenize_labels.h"

#include <algorithm>
#include <memory>
#include <span>
#include <system_error>
#include <thread>

#include "base/counted.h"
#include "base/error.h"
#include "base/host/cpu_quota.h"
#include "launcher/commands/conveyor.h"
#include "launcher/commands/tokenize/tag_columns.h"
#include "launcher/rank/cores.h"
#include "launcher/screen/printable.h"
#include "text/classes/class_tokenizer.h"
#include "text/input/input_bytes.h"

namespace strata::launcher {

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
        fail(Exit::usage, "{} has a word and its tag in each line, and --labels takes .jsonl, .csv or .tsv: {}",
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
  Conveyor<ClassTokens> conveyor(reader, bytes, [&](const ClassTokens& tokens) {
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
  conveyor.run(threads_of(options), [&] {
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

}  // namespace strata::launcher
