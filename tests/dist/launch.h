#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace strata::tests {

// Files of the programs under test: launch.cc alone has them on its compile line (see source_dir.h).
extern const std::string kStrata;
extern const std::string kCommDist;  // a rank of comm_test's

// How a process ended and what it said. Under mpirun: mpirun's exit code, and what all ranks and mpirun said.
struct Outcome {
  int code = -1;   // exit code; -1 if a signal ended it
  int signal = 0;  // that signal
  double seconds = 0;
  bool in_time = true;  // false: it was killed at the time limit
  std::string output, errors;

  // Lines in which the program complains, whichever rank said them, without the "strata: " in front.
  std::vector<std::string> complaints() const;
  // Everything, for the message of a failed expectation.
  std::string all() const;
};

// A command that runs in a process group of its own; killed with it if the test ends first. Move-free: hold it
// still.
class Running {
 public:
  explicit Running(const std::vector<std::string>& command);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void send(int signal) const;
  // Reads what it says until `enough(output, errors)` or it has ended or the time is over; true if it was enough.
  bool wait_until(const std::function<bool(const std::string&, const std::string&)>& enough, double seconds = 60);
  Outcome wait(double seconds = 60);

 private:
  // One round of reading; false once both pipes are at their end.
  bool read_some(int milliseconds);

  pid_t pid_ = -1;
  int pipes_[2] = {-1, -1};
  Outcome outcome_;
  std::chrono::steady_clock::time_point start_;
};

Outcome run(const std::vector<std::string>& command, double seconds = 60);

// Waits for a file or folder that a process makes; false if it does not come in time.
bool appears(const std::filesystem::path& path, double seconds = 60);
// The number in a file that a process writes one line to: waits until the line is whole. Throws if it does not come in
// time.
int number_from(const std::filesystem::path& path, double seconds = 60);

// Whether mpirun is that of Open MPI 5, which is PRRTE's.
bool is_prrte();

// mpirun's options with which it puts a tag before each piece of a line of a rank, and that tag, "[1,0]<stdout>:".
std::vector<std::string> tagged_output();
std::string output_tag(int rank);

// `command` as `ranks` ranks under mpirun, every line of theirs tagged with the rank. `script` is what the shell of
// each rank does: "$@" is the command there, $OMPI_COMM_WORLD_RANK the rank.
std::vector<std::string> under_mpirun(int ranks, const std::vector<std::string>& command,
                                      const std::string& script = "exec \"$@\"");

// The end of a script: the shell ends with its exit code, $code, once the shells of all ranks have come here, or 8 s
// later. mpirun ends the others as soon as it hears of one that failed; until then they end by themselves. `folder`: an
// empty one for each run, or one that has no file whose name begins with "exit.".
std::string end_together(const std::string& folder);

}  // namespace strata::tests
