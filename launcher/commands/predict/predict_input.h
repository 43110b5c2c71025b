#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "launcher/commands/predict/predict_options.h"
#include "launcher/rank/stop_signal.h"
#include "text/classes/truncation.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// Tokens of a text at most, with those of the template, and which of two texts is cut.
struct TextLimit {
  std::size_t tokens = 0;
  text::Truncation truncation = text::Truncation::longest_first;
};

// The texts of IN as a token file beside OUT, which goes away with this: a document per record, in their order.
class PredictInput {
 public:
  // Where the tokens lie.
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // All files that it makes, of which path_of() is the first.
  static std::vector<std::filesystem::path> paths_of(const std::filesystem::path& out);

  // words: texts are lists of words, and the first token of each counts. Says how many texts there are. Throws Error
  // with IN's name and line if a record is not what the options say.
  PredictInput(const PredictOptions& options, const text::Tokenizer& tokenizer, const TextLimit& limit, bool words,
               const StopSignal& stop);
  ~PredictInput();
  PredictInput(const PredictInput&) = delete;
  PredictInput& operator=(const PredictInput&) = delete;

  std::uint64_t texts() const { return texts_; }
  std::uint64_t cut() const { return cut_; }  // texts that lost tokens to the limit
  // Of lists of words: how many each text has, and how many of them have a token. A word may have none: it was cut off,
  // or the tokenizer makes nothing of it.
  const std::vector<std::uint32_t>& words() const { return words_; }
  std::uint64_t words_with_token() const { return words_with_token_; }
  // Words with a token follow each other, and a text's first is its word 0, but for these: the one with this number
  // among all that have a token is this word of its text.
  struct Skip {
    std::uint64_t number;
    std::uint32_t word;
  };
  const std::vector<Skip>& skips() const { return skips_; }

 private:
  std::filesystem::path out_;
  std::uint64_t texts_ = 0, cut_ = 0, words_with_token_ = 0;
  std::vector<std::uint32_t> words_;
  std::vector<Skip> skips_;
};

}  // namespace strata::launcher
