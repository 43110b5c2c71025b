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

// How a process ended, and its output. Under mpirun: mpirun's exit code, and the output of all ranks and of mpirun.
struct Outcome {
  int code = -1;   // exit code; -1 if a signal ended it
  int signal = 0;  // that signal
  double seconds = 0;
  bool in_time = true;  // false: it was killed at the time limit
  std::string output, errors;

  // The lines in which any rank complains, without the "strata: " in front.
  std::vector<std::string> complaints() const;
  // Everything, for the message of a failed expectation.
  std::string all() const;
};

// A command in a process group of its own, which is killed if the test ends first. It cannot be moved.
class Running {
 public:
  explicit Running(const std::vector<std::string>& command);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void send(int signal) const;
  // Reads output until `enough(output, errors)`, the command's end or the time limit. True if it was enough.
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

// Waits until a process creates the file or folder. Returns false at the time limit.
bool appears(const std::filesystem::path& path, double seconds = 60);
// The number in a file to which a process writes one line. Waits until the line is complete. Throws at the time limit.
int number_from(const std::filesystem::path& path, double seconds = 60);

// Whether mpirun is Open MPI 5's, which is PRRTE's.
bool is_prrte();

// mpirun's options that tag each piece of a rank's line, and the tag: "[1,0]<stdout>:".
std::vector<std::string> tagged_output();
std::string output_tag(int rank);

// Runs `command` as `ranks` ranks under mpirun, each line tagged with its rank. `script` runs in each rank's shell:
// there "$@" is the command and $OMPI_COMM_WORLD_RANK the rank.
std::vector<std::string> under_mpirun(int ranks, const std::vector<std::string>& command,
                                      const std::string& script = "exec \"$@\"");

// The end of a script: the shell ends with its exit code, $code, once the shells of all ranks have come here, or 8 s
// later. mpirun ends the other ranks as soon as it hears of a failed one; until then they can end by themselves.
// `folder`: a new empty one for each run, or one without files whose names begin with "exit.".
std::string end_together(const std::string& folder);

}  // namespace strata::tests
