#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files/descriptor.h"

namespace strata::launcher {

// A program to start: its words, the variables (NAME=VALUE) added to this process's environment, and whether the
// program reads its standard input, which is otherwise empty.
struct Program {
  std::vector<std::string> words;
  std::vector<std::string> environment;
  bool listens = false;
  bool holds_term = false;  // SIGTERM is blocked in it, until it unblocks the signal for programs that it starts
};

// Reads lines from a pipe. Owns the reading end.
class LineReader {
 public:
  using LineHandler = std::function<void(std::string_view line)>;

  explicit LineReader(LineHandler take) : take_(std::move(take)) {}
  void open(Descriptor pipe);
  // Reads what is available without blocking, and passes every complete line to `take`, without its line break. At the
  // end of the pipe, also passes a last line that has none. A line above 1 MiB is passed in pieces.
  void read();
  // -1 at the end of the pipe.
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
  LineHandler take_;
  std::string rest_;
};

// Waits until a pipe has data (which it then reads), a signal arrives, or the time is up.
void read_lines(std::span<LineReader* const> readers, int milliseconds);

// A process started by this one, in a separate process group, so that Ctrl-C reaches only this process. read_lines()
// reads its lines. If it still runs when this object is destroyed, it is killed with its group.
class Child {
 public:
  // Throws Error{failed} if the program cannot be started.
  Child(const Program& program, LineReader::LineHandler out, LineReader::LineHandler errors);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // False if the child does not read (any more). The line is then lost.
  bool write_line(std::string_view line);

  LineReader& out() { return out_; }
  LineReader& errors() { return errors_; }

  // The exit code as a shell reports it, 128 + N for signal N; nullopt while the process runs.
  std::optional<int> exit_code();
  // Whether it has ended and all its output has been read. Something that it left running (ssh with ControlPersist, or
  // ssh to a node that is gone) may keep its pipes open, so some seconds after the end they are ignored.
  bool is_over();
  void send(int signal) const;
  void send_to_group(int signal) const;

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
  SteadyClock::time_point ended_;  // when code_ was set
  Descriptor input_;
  LineReader out_, errors_;
};

// A program's output and exit code. The code is empty if the program was killed.
struct ProgramResult {
  std::optional<int> code;
  std::string out, errors;
};
// Runs a program, and kills it after `seconds`. meanwhile: called every 20 ms.
ProgramResult run_program(const Program& program, double seconds, const std::function<void()>& meanwhile = {});

// The path in PATH of the program with this name; empty if there is none.
std::string find_program(std::string_view name);

}  // namespace strata::launcher
