#include "tests/dist/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "comm/mpi/start.h"

namespace strata::tests {

const std::string kStrata = STRATA, kCommDist = COMM_DIST;

namespace {

// Tests kill processes of mpirun, which leave their shared memory segments behind.
class RemoveStaleFiles final : public testing::Environment {
  void TearDown() override { (void)comm::remove_stale_files(); }
};
const auto* const remove_stale_files = testing::AddGlobalTestEnvironment(new RemoveStaleFiles);

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::vector<std::string> Outcome::complaints() const {
  std::vector<std::string> found;
  constexpr std::string_view kSaid = "strata: ", kTagged = "<stderr>:";  // the latter by mpirun: "[1,0]<stderr>:"
  constexpr std::string_view kDescribes[] = {"resumes after ",
                                             "weights read in ",
                                             "nvme tier",
                                             "nothing will be saved",
                                             "weights will not be saved",
                                             "every token is trained on, and it",
                                             "random, untrained weights from ",
                                             "done after step ",
                                             "each layer is computed as one",
                                             "threads wait for each other"};
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    std::string_view text = line;
    if (text.starts_with("[1,") && text.find(kTagged) < 12) {
      text.remove_prefix(text.find(kTagged) + kTagged.size());
      if (text.starts_with(' ')) text.remove_prefix(1);
    }
    if (!text.starts_with(kSaid)) continue;
    text.remove_prefix(kSaid.size());
    // "memory   RAM for the model 1.0 MiB per rank", and the continuation of such a line.
    const std::size_t gap = text.find("  ");
    if (gap <= 8 && text.find_first_of(" :") == gap) continue;
    if (std::none_of(std::begin(kDescribes), std::end(kDescribes),
                     [&](std::string_view words) { return text.find(words) != text.npos; }))
      found.emplace_back(text);
  }
  return found;
}

std::string Outcome::all() const {
  // Leaves out the thousands of steps in the middle.
  const auto shown = [](const std::string& text) {
    constexpr std::size_t kPart = 2000;
    if (text.size() <= 2 * kPart) return text;
    return text.substr(0, kPart) + "\n...\n" + text.substr(text.size() - kPart);
  };
  return "exit " + std::to_string(code) + ", signal " + std::to_string(signal) + (in_time ? "" : ", killed") +
         " after " + std::to_string(seconds) + " s\n--- stdout\n" + shown(output) + "--- stderr\n" + shown(errors) +
         "---\n";
}

Running::Running(const std::vector<std::string>& command) : start_(std::chrono::steady_clock::now()) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  pipes_[0] = out[0];
  pipes_[1] = err[0];
}

Running::~Running() {
  if (pid_ > 0) {
    outcome_.in_time = false;
    // On request, mpirun ends its ranks, which are in process groups of their own.
    kill(-pid_, SIGTERM);
    for (int i = 0; i < 100 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) usleep(20'000);
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : pipes_)
    if (fd >= 0) close(fd);
}

void Running::send(int signal) const {
  kill(pid_, signal);
}

bool Running::read_some(int milliseconds) {
  pollfd polled[2] = {{pipes_[0], POLLIN, 0}, {pipes_[1], POLLIN, 0}};
  if (poll(polled, 2, milliseconds) <= 0) return pipes_[0] >= 0 || pipes_[1] >= 0;
  std::string* const texts[2] = {&outcome_.output, &outcome_.errors};
  for (int i = 0; i < 2; ++i) {
    if (polled[i].revents == 0) continue;
    char buffer[4096];
    const ssize_t size = read(pipes_[i], buffer, sizeof buffer);
    if (size > 0) {
      texts[i]->append(buffer, static_cast<std::size_t>(size));
    } else {
      close(pipes_[i]);
      pipes_[i] = -1;  // which poll leaves out
    }
  }
  return pipes_[0] >= 0 || pipes_[1] >= 0;
}

bool Running::wait_until(const std::function<bool(const std::string&, const std::string&)>& enough, double seconds) {
  while (!enough(outcome_.output, outcome_.errors))
    if (seconds_since(start_) > seconds || !read_some(20)) return enough(outcome_.output, outcome_.errors);
  return true;
}

Outcome Running::wait(double seconds) {
  const auto over = [&] { return seconds_since(start_) > seconds; };
  while (!over() && read_some(50)) {
  }
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (over()) {
      outcome_.in_time = false;
      kill(-pid_, SIGTERM);
      for (int i = 0; i < 100 && waitpid(pid_, &status, WNOHANG) == 0; ++i) read_some(20);
      kill(-pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      break;
    }
    usleep(2'000);
  }
  pid_ = -1;
  while (read_some(0) && !over()) {
  }
  outcome_.seconds = seconds_since(start_);
  if (WIFEXITED(status)) outcome_.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
  return outcome_;
}

Outcome run(const std::vector<std::string>& command, double seconds) {
  return Running(command).wait(seconds);
}

bool appears(const std::filesystem::path& path, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (!std::filesystem::exists(path)) {
    if (seconds_since(start) > seconds) return false;
    usleep(1'000);
  }
  return true;
}

int number_from(const std::filesystem::path& path, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    std::ifstream file(path);
    std::string line;
    // The last line of the file is not complete.
    if (std::getline(file, line) && !file.eof()) return std::stoi(line);
    if (seconds_since(start) > seconds) throw std::runtime_error(path.string() + " holds no whole line");
    usleep(1'000);
  }
}

bool is_prrte() {
  // Open MPI 4's mpiexec says "(OpenRTE) 4.1.4", and its mpirun "(Open MPI) 4.1.4".
  static const bool is = run({MPIRUN, "--version"}).output.find(") 4.") == std::string::npos;
  return is;
}

std::vector<std::string> tagged_output() {
  if (is_prrte()) return {"--output", "tag:raw"};
  return {"--tag-output"};
}

std::string output_tag(int rank) {
  return "[1," + std::to_string(rank) + "]<stdout>:" + (is_prrte() ? " " : "");
}

std::vector<std::string> under_mpirun(int ranks, const std::vector<std::string>& command, const std::string& script) {
  // Containers run as root, and there may be fewer cores than ranks, shared with other tests.
  const std::string number = std::to_string(ranks);
  std::vector<std::string> all = {"env",
                                  "OMPI_ALLOW_RUN_AS_ROOT=1",
                                  "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                  MPIRUN,
                                  "--oversubscribe",
                                  "--bind-to",
                                  "none",
                                  "--mca",
                                  "odls_base_sigkill_timeout",
                                  "0",
                                  "-n",
                                  number};
  for (const std::string& option : tagged_output()) all.push_back(option);
  all.insert(all.end(), {"sh", "-c", script, "sh"});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

std::string end_together(const std::string& folder) {
  return "cd " + folder + "; echo $code >exit.$OMPI_COMM_WORLD_RANK; for i in $(seq 80); do " +
         "test $(ls | grep -c '^exit[.]') = $OMPI_COMM_WORLD_SIZE && break; sleep 0.1; done; exit $code";
}

}  // namespace strata::tests
