#pragma once
// launcher/commands/predict/ is `strata predict` (predict.cc): its texts as tokens next to OUT (here), and finished
// work in OUT.part (predict_part.h).
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/rank/stop_signal.h"
#include "text/classes/truncation.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// The most tokens of a text, including the template's, and which of two texts is cut.
struct TextLimit {
  std::size_t tokens = 0;
  text::Truncation truncation = text::Truncation::longest_first;
};

// The texts of IN as a token file next to OUT, one document per record, in order. The files are removed with this
// object.
class PredictInput {
 public:
  // The path of the token file.
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // All files that it writes, path_of() first.
  static std::vector<std::filesystem::path> paths_of(const std::filesystem::path& out);

  // words: texts are lists of words, and the first token of each word counts. Throws
  // Error with IN's name and line if a record does not match the options.
  PredictInput(const PredictOptions& options, const text::Tokenizer& tokenizer, const TextLimit& limit, bool words,
               const StopSignal& stop);
  ~PredictInput();
  PredictInput(const PredictInput&) = delete;
  PredictInput& operator=(const PredictInput&) = delete;

  std::uint64_t texts() const { return texts_; }
  std::uint64_t cut() const { return cut_; }  // texts that lost tokens to the limit
  // For lists of words: how many words each text has, and how many words have a token. A word has none if it was cut
  // off or if the tokenizer makes nothing of it.
  const std::vector<std::uint32_t>& words() const { return words_; }
  std::uint64_t words_with_token() const { return words_with_token_; }
  // Words with a token are consecutive and start at word 0 of their text, except for these: among all words with a
  // token, the one with this number is this word of its text.
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
