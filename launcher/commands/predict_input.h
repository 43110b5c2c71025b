#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "launcher/commands/predict_options.h"
#include "launcher/rank/stop_signal.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// The texts of IN as a token file beside OUT, which goes away with this: a document per record, in their order.
class PredictInput {
 public:
  // Where the tokens lie.
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // words: texts are lists of words, and the first token of each counts. Says how many texts there are. Throws Error
  // with IN's name and line if a record is not what the options say.
  PredictInput(const PredictOptions& options, const text::Tokenizer& tokenizer, std::size_t max_length, bool words,
               const StopSignal& stop);
  ~PredictInput();
  PredictInput(const PredictInput&) = delete;
  PredictInput& operator=(const PredictInput&) = delete;

  std::uint64_t texts() const { return texts_; }

 private:
  std::filesystem::path path_;
  std::uint64_t texts_ = 0;
};

}  // namespace strata::launcher
