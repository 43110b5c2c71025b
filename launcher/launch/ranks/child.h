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

// A program to start: its words, what is added to this process's environment (NAME=VALUE), and whether it is told
// things by its standard input, which is empty otherwise.
struct Program {
  std::vector<std::string> words;
  std::vector<std::string> environment;
  bool listens = false;
  bool holds_term = false;  // it hears no SIGTERM, which is blocked in it until it unblocks it for what it starts
};

// The lines that come out of a pipe. Owns its end of it.
class LineReader {
 public:
  using Take = std::function<void(std::string_view line)>;

  explicit LineReader(Take take) : take_(std::move(take)) {}
  void open(Descriptor pipe);
  // Reads what there is without blocking and gives every whole line to `take`, without its end; at the end of the pipe
  // also what has none. A line above 1 MiB comes in pieces.
  void read();
  // -1 at its end.
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
  Take take_;
  std::string rest_;
};

// Sleeps until one of the pipes has something, which is then read, a signal came, or the time is over.
void read_lines(std::span<LineReader* const> readers, int milliseconds);

// A process that this one started, in a process group of its own, so that a Ctrl-C reaches this process alone. Its
// lines are read by read_lines(). Killed with its group if it still runs at the end.
class Child {
 public:
  // Throws Error{failed} if the program cannot be started.
  Child(const Program& program, LineReader::Take out, LineReader::Take errors);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // False if it does not read (any more): the line is lost.
  bool write_line(std::string_view line);
  // Says that nothing more will be written.
  void close_input() { input_ = Descriptor(); }

  LineReader& out() { return out_; }
  LineReader& errors() { return errors_; }

  // As a shell has it, 128 + N for signal N; nullopt while it runs.
  std::optional<int> exit_code();
  // It has ended, and all it said was read. What it left behind (ssh with ControlPersist, ssh of a node that is gone)
  // may hold its pipes: some seconds later nobody waits for them.
  bool is_over();
  void send(int signal) const;
  void send_to_group(int signal) const;

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
  SteadyClock::time_point ended_;  // when code_ was seen
  Descriptor input_;
  LineReader out_, errors_;
};

// What a program said and how it ended, after at most so many seconds: then it is killed and there is no code.
// meanwhile: is called every 20 ms.
struct Said {
  std::optional<int> code;
  std::string out, errors;
};
Said run_program(const Program& program, double seconds, const std::function<void()>& meanwhile = {});

// The path of a program of this name in PATH; empty: there is none.
std::string find_program(std::string_view name);

}  // namespace strata::launcher
