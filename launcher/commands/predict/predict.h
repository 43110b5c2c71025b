#pragma once
// launcher/commands/predict/ is `strata predict` (predict.cc): its texts as tokens next to OUT, and finished work
// in OUT.part.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/descriptor.h"
#include "launcher/commands/commands.h"
#include "launcher/rank/stop_signal.h"
#include "runtime/job/score_memory.h"
#include "text/classes/class_tokenizer.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// The maximum number of tokens per text, including the template's, and which of two texts is cut.
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
  // In each text, the words with a token are consecutive and start at word 0, except for these: number `number` of all
  // words with a token is word `word` of its text.
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

// The first row of `classes` scores in which a score is infinite or NaN.
std::optional<std::size_t> row_not_finite(std::span<const float> scores, std::size_t classes);

// Refuses existing files next to OUT with the names of files that a prediction writes, unless OUT.part shows that an
// earlier prediction made them. Throws Error{usage} that names the file.
void require_free_names(const std::filesystem::path& part, const std::vector<std::filesystem::path>& others);

// Creates OUT.part, if there is none, before the files next to it, to mark them as a prediction's. If the prediction is
// killed before its first round, the next one may then replace them.
void reserve_names(const std::filesystem::path& part);
// Removes the file if it holds nothing but that mark.
void release_names(const std::filesystem::path& part);

// Appends rows' scores to OUT.part, so that a stopped prediction can resume. The file begins with a line that
// identifies the prediction. Each round then adds the number of finished micro-batches, its number of rows, and the
// rows' numbers and scores. Only the rows' places in the file are kept in memory.
class PredictPart {
 public:
  static constexpr const char* kBegins = "strata predict by ";
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // of_what: one line, beginning with kBegins, that identifies model, texts and batches; a file with another line is
  // not continued. places: room for all rows; must outlive this object.
  PredictPart(std::filesystem::path path, std::string of_what, std::size_t classes,
              std::span<runtime::RowPlace> places);

  // Opens the file and keeps what an earlier run has done for the same line. Returns the number of finished
  // micro-batches. Like add(), throws Error{failed} if the file cannot be written, or Error{does_not_fit} if the disk
  // is full.
  std::uint64_t open();
  // Call it after open().
  void add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores);
  std::size_t rows() const { return rows_; }
  // Reads every row again, in the order of row numbers. Throws Error{failed} if the file cannot be read.
  void each_row(const std::function<void(std::int64_t row, std::span<const float> scores)>& f);
  void remove();

 private:
  std::size_t row_bytes() const { return sizeof(std::int32_t) + classes_ * sizeof(float); }
  // Fills `out` from byte `at` on. False if the file ends before.
  bool read(std::uint64_t at, std::span<std::byte> out) const;
  void write(std::span<const std::byte> bytes);
  // Reads the round that starts at `at`. Returns how many micro-batches are done after it; 0 if there is no complete
  // round.
  std::uint64_t read_round(std::uint64_t& at, std::uint64_t size);

  std::filesystem::path path_;
  std::string of_what_;
  std::size_t classes_;
  std::span<runtime::RowPlace> places_;
  std::size_t rows_ = 0;
  std::uint64_t end_ = 0;  // the file's
  Descriptor file_;
  std::vector<std::byte> round_;
};

}  // namespace strata::launcher
