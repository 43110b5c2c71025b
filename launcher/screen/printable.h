#pragma once
// launcher/screen/ is the output for users: printable texts (here), the live line and the progress of long operations
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

// Makes a text safe for a terminal, on one line. Line breaks become "\n", and other control characters, which names in
// other people's files may contain, become '?'. Tabs are kept. `lines`: line breaks are kept, too.
std::string printable(std::string_view text, bool lines = false);

// Prints the text to stderr unchanged. If stderr cannot be written (a full disk, a pipe whose reader has ended), only
// the text is lost: the program's behaviour and exit code stay the same.
void print_to_stderr(std::string_view text);

// Prints "strata: TEXT", made printable.
void note(std::string_view text);

// Prints the notes from loading a model and data, a tokenizer or a chat template, each prefixed by `of` if given. Each
// command that loads one of these prints its notes once.
void print_notes(std::span<const std::string> notes, std::string_view of = {});

// note(), formatted by fmt.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  note(fmt::format(format, std::forward<Args>(args)...));
}

// Prints "strata: TEXT" for an error that ends the program: one line, plus one for each change that would make a plan
// fit. Under `strata launch` (STRATA_LAUNCH), it ends with failure_end(), which launch removes. This ending lets launch
// distinguish the cause from other output, and the rank's exit code from that of mpirun.
void print_failure(std::string_view text, Exit code, EndReason reason = {});
// A character that occurs in no other text, followed by three numbers: the exit code and the reason.
inline constexpr char kFailureEnd = '\x1e';
std::string failure_end(Exit code, EndReason reason = {});

// A stream that makes its input printable, whatever names and paths it contains, and passes it to another stream line
// by line.
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
  std::string line_;  // the last line, which is still unfinished
};

constexpr std::size_t kColumns = 100;  // the maximum width of a command's output

// Wraps prose at spaces to lines of at most `columns`; continuation lines are indented. Existing line breaks are kept,
// and a word that is longer than a line (a path) is not broken.
std::string folded(std::string_view text, std::size_t indent = 0, std::size_t columns = kColumns);

// Prints wrapped text as notes (printable.h). The prefix of each note counts towards the width.
void note_folded(std::string_view text);

// Rows with the same number of cells, as lines with line breaks. The first column is left-aligned, and the others are
// right-aligned. Columns are two spaces apart, or one if the width is too small.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t columns = kColumns);

}  // namespace strata::launcher
