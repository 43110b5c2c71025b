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

// A program to start: its words, the variables added to this process's environment (NAME=VALUE), and whether it reads
// its standard input, which is otherwise empty.
struct Program {
  std::vector<std::string> words;
  std::vector<std::string> environment;
  bool listens = false;
  bool holds_term = false;  // SIGTERM is blocked in it until it unblocks it for programs that it starts
};

// Reads lines from a pipe. Owns the reading end.
class LineReader {
 public:
  using Take = std::function<void(std::string_view line)>;

  explicit LineReader(Take take) : take_(std::move(take)) {}
  void open(Descriptor pipe);
  // Reads what there is without blocking and passes every whole line, without its line break, to `take`; at the end of
  // the pipe also a last line without one. A line above 1 MiB comes in pieces.
  void read();
  // -1 at the end of the pipe.
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
  Take take_;
  std::string rest_;
};

// Waits until a pipe has data, which it then reads, a signal arrives, or the time is over.
void read_lines(std::span<LineReader* const> readers, int milliseconds);

// A process that this one started, in a process group of its own, so that Ctrl-C reaches only this process.
// read_lines() reads its lines. If it still runs when this object is destroyed, it is killed with its group.
class Child {
 public:
  // Throws Error{failed} if the program cannot be started.
  Child(const Program& program, LineReader::Take out, LineReader::Take errors);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // False if it does not read (any more); the line is lost.
  bool write_line(std::string_view line);

  LineReader& out() { return out_; }
  LineReader& errors() { return errors_; }

  // The exit code as a shell has it, 128 + N for signal N; nullopt while the process runs.
  std::optional<int> exit_code();
  // Whether it has ended and all its output was read. Something that it left running (ssh with ControlPersist, ssh to a
  // node that is gone) may hold its pipes, so some seconds after the end they are not waited for.
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

// A program's output and exit code; no code if it was killed.
struct ProgramResult {
  std::optional<int> code;
  std::string out, errors;
};
// Runs a program, and kills it if it takes longer than `seconds`. meanwhile: called every 20 ms.
ProgramResult run_program(const Program& program, double seconds, const std::function<void()>& meanwhile = {});

// The path of the program of this name in PATH; empty if there is none.
std::string find_program(std::string_view name);

}  // namespace strata::launcher
