#pragma once
// launcher/screen/ is what a user sees: printable texts (here), the live line (progress.h), how far long work is
// (activity.h), and what a run says at its start and its end (run_text.h).
#include <fmt/format.h>

#include <ostream>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

#include "base/end_reason.h"
#include "base/error.h"

namespace strata::launcher {

// A text for a terminal, on one line: line breaks as "\n", and '?' for the other control characters, which names in
// files that others wrote may hold; tabs stay. `lines`: line breaks stay too.
std::string printable(std::string_view text, bool lines = false);

// TEXT on stderr, as it is. A stderr that cannot be written (a full disk behind a log, a pipe that nobody reads any
// more) loses the text and nothing else: what the program does, and its exit code, stay.
void tell(std::string_view text);

// "strata: TEXT", printable.
void note(std::string_view text);

// Notes of what loading something found that the user should read, each begun with `of` if that is given: of a job's
// model and data; of a tokenizer; of a chat template. Each command that loads one of these says it, once.
void tell_remarks(std::span<const std::string> remarks, std::string_view of = {});

// note(), formatted by fmt.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  note(fmt::format(format, std::forward<Args>(args)...));
}

// "strata: TEXT" for what ends the program: a line, and a line for each change with which a plan would fit. Under
// `strata launch` (STRATA_LAUNCH) it ends with complaint_end(), which launch takes away again: so that it knows the
// cause from what else was said, and the rank's exit code from mpirun's.
void complain(std::string_view text, Exit code, EndReason reason = {});
// A character that no other text has, the exit code and the reason: three numbers.
inline constexpr char kComplaintEnd = '\x1e';
std::string complaint_end(Exit code, EndReason reason = {});

// A stream that writes what it is given to another one, line by line, printable: whatever the names and paths in it.
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
  std::string line_;  // the last one, which has not ended yet
};

}  // namespace strata::launcher
