#include <optional>
#include <span>
#include <system_error>
#include <variant>
#include <vector>

#include "base/error.h"
#include "launcher/commands/predict/predict.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "launcher/token_output.h"
#include "text/classes/class_tokenizer.h"
#include "text/documents.h"
#include "text/input/input_bytes.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

text::DocumentInput input_of(const std::string& name) {
  if (name == "-") return {name, text::InputKind::lines};
  (void)text::look_at_input(name);
  if (const auto kind = text::kind_of_name(name)) return {name, *kind};
  fail(Exit::usage,
       "{} is neither .jsonl nor .csv nor .tsv: give texts to predict in one of these formats (compressed or not), or "
       "- for JSONL from standard input",
       name);
}

}  // namespace

fs::path PredictInput::path_of(const fs::path& out) {
  fs::path path = out;
  path += ".tokens";
  return path;
}

std::vector<fs::path> PredictInput::paths_of(const fs::path& out) {
  std::vector<fs::path> paths;
  for (const char* suffix : {"", ".json", ".documents", ".mask", ".types"}) {
    fs::path path = path_of(out);
    paths.push_back(path += suffix);
  }
  return paths;
}

PredictInput::PredictInput(const PredictOptions& options, const text::Tokenizer& tokenizer, const TextLimit& limit,
                           bool words, const StopSignal& stop)
    : out_(options.out) {
  const text::ClassRules rules{.record = {.text = options.field, .pair = options.pair},
                               .max_length = limit.tokens,
                               .truncation = limit.truncation,
                               .takes_empty = true};
  const text::DocumentInput input = input_of(options.input);
  text::DocumentReader reader({input}, false, tokenizer);
  text::ClassTokenizer made(tokenizer, rules);
  TokenOutput output(path_of(out_), {{"IN", input.name}}, true);
  text::TokenWriter& writer = output.open(tokenizer, std::nullopt, words);
  text::BitFile& types = output.open_types();
  Activity activity("reading texts");
  text::DocumentPart part;
  text::ClassTokens tokens;
  while (reader.next(part)) {
    if (stop.requested())
      fail(Exit::failed, "stopped on request while {} was being read: nothing has been predicted yet", input.name);
    made.run(part, tokens);
    for (std::size_t i = 0; i < tokens.begins.size(); ++i) {
      const std::size_t begin = tokens.begins[i];
      const std::size_t end = i + 1 < tokens.begins.size() ? tokens.begins[i + 1] : tokens.ids.size();
      writer.begin_document();
      const auto ids = std::span(tokens.ids).subspan(begin, end - begin);
      if (words) {
        if (tokens.labels[i].values.empty())
          fail(Exit::usage,
               "{}, text {}: \"{}\" is one string, but the model labels each word: give the words as a list",
               input.name, texts_ + 1, options.field);
        std::vector<std::uint8_t> counts;
        std::uint32_t next = 0;
        for (const auto& label : tokens.labels[i].values) {
          counts.push_back(label.has_value());
          if (!label) continue;
          const auto word = static_cast<std::uint32_t>(std::get<std::int64_t>(*label));
          if (word != next) skips_.push_back({words_with_token_, word});
          next = word + 1;
          ++words_with_token_;
        }
        words_.push_back(static_cast<std::uint32_t>(tokens.words[i]));
        counts.resize(ids.size());
        writer.add(ids, counts);
      } else {
        writer.add(ids);
      }
      for (std::size_t t = begin; t < end; ++t) types.add(tokens.types[t] != 0, 1);
      ++texts_;
    }
    cut_ += tokens.cut;
    activity.show(texts_, 0);
  }
  if (texts_ == 0) fail(Exit::usage, "{} holds no record: there is nothing to predict", input.name);
  if (words && writer.labels() == 0)
    fail(Exit::usage, "{}: no \"{}\" has a word: there is nothing to predict", input.name, options.field);
  reserve_names(PredictPart::path_of(out_));
  output.commit(TokenOutput::Summary::none);
  for (const std::string& sentence : reader.notes()) note(sentence);
}

PredictInput::~PredictInput() {
  std::error_code ignored;
  for (const fs::path& path : paths_of(out_)) fs::remove(path, ignored);
  release_names(PredictPart::path_of(out_));
}

}  // namespace strata::launcher
