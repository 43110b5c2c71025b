#pragma once
// launcher/screen/ is the output for users: printable texts (here), the live line and the progress of long work
// (progress.h), and what a run prints at its start and end (run_text.h).

#include <fmt/format.h>

#include <cstddef>
#include <ostream>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/abort.h"
#include "base/error.h"

namespace strata::launcher {

// Makes a text safe for a terminal, on one line: line breaks become "\n", and other control characters, which names in
// other people's files may contain, become '?'. Tabs stay. `lines`: line breaks stay, too.
std::string printable(std::string_view text, bool lines = false);

// Prints the text to stderr unchanged. If stderr cannot be written (a full disk, a pipe whose reader has ended), only
// the text is lost: the program's behaviour and exit code stay the same.
void print_to_stderr(std::string_view text);

// Prints "strata: TEXT", made printable.
void note(std::string_view text);

// Prints the notes that loading a model and data, a tokenizer or a chat template produced, each prefixed by
// `of` if given. Each command that loads one of these prints them once.
void print_notes(std::span<const std::string> notes, std::string_view of = {});

// note(), formatted by fmt.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  note(fmt::format(format, std::forward<Args>(args)...));
}

// Prints "strata: TEXT" for what ends the program: one line, plus one for each change that would make a plan fit. Under
// `strata launch` (STRATA_LAUNCH) it ends with failure_end(), which launch removes. By this ending, launch
// distinguishes the cause from other output, and the rank's exit code from mpirun's.
void print_failure(std::string_view text, Exit code, EndReason reason = {});
// A character that no other text contains, then three numbers: the exit code and the reason.
inline constexpr char kFailureEnd = '\x1e';
std::string failure_end(Exit code, EndReason reason = {});

// A stream that passes its input to another stream line by line, made printable, whatever names and paths it contains.
class PrintableStream : private std::streambuf, public std::ostream {
 public:
  explicit PrintableStream(std::ostream& to) : std::ostream(this), to_(to) {}
  ~PrintableStream() override;
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

 private:
  int overflow(int c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

  std::ostream& to_;
  std::string line_;  // the last line, which has not ended yet
};

constexpr std::size_t kColumns = 100;  // the maximum width of a command's output

// Wraps prose at spaces to lines of at most `columns`; continuation lines are indented. Existing line breaks stay, and
// a word that is longer than a line (a path) stays whole.
std::string folded(std::string_view text, std::size_t indent = 0, std::size_t columns = kColumns);

// Prints wrapped text as notes (printable.h), including each note's prefix in the width.
void note_folded(std::string_view text);

// Rows with the same number of cells, as lines with line breaks. The first column is left-aligned, the others
// right-aligned. Columns are two spaces apart, or one if the width is too small.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t columns = kColumns);

}  // namespace strata::launcher
