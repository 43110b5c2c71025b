#pragma once
// launcher/commands/predict/ is `strata predict` (predict.cc): the texts as tokens next to OUT, and finished work in
// OUT.part.

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

// The maximum number of tokens per text, including those of the template, and which of two texts is cut.
struct TextLimit {
  std::size_t tokens = 0;
  text::Truncation truncation = text::Truncation::longest_first;
};

// The texts of IN as a token file next to OUT, one document per record, in order. The destructor removes them.
class PredictInput {
 public:
  // The path of the token file.
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // All files that this class writes, path_of() first.
  static std::vector<std::filesystem::path> paths_of(const std::filesystem::path& out);

  // words: texts are lists of words, and only the first token of each word counts. Throws Error with IN's name and line
  // if a record does not match the options.
  PredictInput(const PredictOptions& options, const text::Tokenizer& tokenizer, const TextLimit& limit, bool words,
               const StopSignal& stop);
  ~PredictInput();
  PredictInput(const PredictInput&) = delete;
  PredictInput& operator=(const PredictInput&) = delete;

  std::uint64_t texts() const { return texts_; }
  std::uint64_t cut() const { return cut_; }  // texts that lost tokens to the limit
  // For lists of words: the number of words in each text, and the number of words with a token. A word has no token if
  // it was cut off or if the tokenizer produces none for it.
  const std::vector<std::uint32_t>& words() const { return words_; }
  std::uint64_t words_with_token() const { return words_with_token_; }
  // In each text, the words with a token are consecutive and start at word 0, with these exceptions: number `number`
  // among all words with a token is word `word` of its text.
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

// Refuses existing files next to OUT whose names a prediction would write, unless OUT.part shows that an earlier
// prediction made them. Throws Error{usage} that names the file.
void require_free_names(const std::filesystem::path& part, const std::vector<std::filesystem::path>& others);

// Creates OUT.part, unless it exists, before the files next to it. It marks them as a prediction's, so that the next
// prediction may replace them if this one is killed before its first round.
void reserve_names(const std::filesystem::path& part);
// Removes OUT.part if it contains nothing but that mark.
void release_names(const std::filesystem::path& part);

// Appends the scores of rows to OUT.part, so that a stopped prediction can resume. The file begins with a line that
// identifies the prediction. Each round then adds the number of finished micro-batches, its number of rows, and the
// rows' numbers and scores. Only the places of the rows in the file are kept in memory.
class PredictPart {
 public:
  static constexpr const char* kBegins = "strata predict by ";
  static std::filesystem::path path_of(const std::filesystem::path& out);

  // header: one line, beginning with kBegins, that identifies model, texts and batches; a file with another line is
  // not resumed. places: room for all rows; must outlive this object.
  PredictPart(std::filesystem::path path, std::string header, std::size_t classes,
              std::span<runtime::RowLocation> places);

  // Opens the file and keeps the rounds of an earlier run with the same line. Returns the number of finished
  // micro-batches. Like add(), throws Error{failed} if the file cannot be written, or Error{does_not_fit} if the disk
  // is full.
  std::uint64_t open();
  // Call this after open().
  void add(std::uint64_t done, std::span<const std::int32_t> rows, std::span<const float> scores);
  std::size_t rows() const { return rows_; }
  // Reads every row again, in the order of row numbers. Throws Error{failed} if the file cannot be read.
  void each_row(const std::function<void(std::int64_t row, std::span<const float> scores)>& f);
  void remove();

 private:
  std::size_t row_bytes() const { return sizeof(std::int32_t) + classes_ * sizeof(float); }
  // Fills `out` from offset `at`. False if the file ends before that.
  bool read(std::uint64_t at, std::span<std::byte> out) const;
  void write(std::span<const std::byte> bytes);
  // Reads the round that begins at `at`. Returns the number of micro-batches that are finished after it; 0 if there is
  // no complete round.
  std::uint64_t read_round(std::uint64_t& at, std::uint64_t size);

  std::filesystem::path path_;
  std::string header_;
  std::size_t classes_;
  std::span<runtime::RowLocation> places_;
  std::size_t rows_ = 0;
  std::uint64_t end_ = 0;  // the end of the file
  Descriptor file_;
  std::vector<std::byte> round_;
};

}  // namespace strata::launcher
