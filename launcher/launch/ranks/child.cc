#include "launcher/launch/ranks/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.h"

extern char** environ;

namespace strata::launcher {
namespace {

struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail(Exit::failed, "no pipe can be created: {}; raise the limit of open files (ulimit -n)", std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Pointers into `words`, as execve() takes them.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

// This process's environment, in which `added` replaces variables of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& added) {
  std::vector<std::string> out;
  const auto name = [](std::string_view text) { return text.substr(0, text.find('=')); };
  for (char** one = environ; *one; ++one)
    if (std::none_of(added.begin(), added.end(), [&](const std::string& other) { return name(other) == name(*one); }))
      out.emplace_back(*one);
  out.insert(out.end(), added.begin(), added.end());
  return out;
}

constexpr double kForPipes = 3;                         // seconds after the end
constexpr std::size_t kMaxLine = std::size_t{1} << 20;  // bytes; a longer line comes in pieces

}  // namespace

void LineReader::open(Descriptor pipe) {
  fd_ = std::move(pipe);
  ::fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
}

void LineReader::read() {
  char buffer[4096];
  while (fd_.get() >= 0) {
    const ssize_t got = ::read(fd_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      fd_ = Descriptor();
      if (!rest_.empty()) take_(std::exchange(rest_, {}));
      return;
    }
    std::size_t begin = 0, looked = rest_.size();
    rest_.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = rest_.find('\n', looked)) != std::string::npos; begin = looked = end + 1)
      take_(std::string_view(rest_).substr(begin, end - begin));
    rest_.erase(0, begin);
    if (rest_.size() >= kMaxLine) take_(std::exchange(rest_, {}));
  }
}

void read_lines(std::span<LineReader* const> readers, int milliseconds) {
  std::vector<pollfd> polled;
  for (LineReader* reader : readers) polled.push_back({reader->fd(), POLLIN, 0});  // poll ignores -1
  if (::poll(polled.data(), polled.size(), milliseconds) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents) readers[i]->read();
}

Child::Child(const Program& program, LineReader::LineHandler out, LineReader::LineHandler errors)
    : out_(std::move(out)), errors_(std::move(errors)) {
  Pipe in, output, error_output;
  output = make_pipe();
  error_output = make_pipe();
  if (program.listens) in = make_pipe();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (program.listens)
    posix_spawn_file_actions_adddup2(&files, in.read.get(), STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, error_output.write.get(), STDERR_FILENO);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  sigset_t usual, blocked;
  sigemptyset(&blocked);
  if (program.holds_term) sigaddset(&blocked, SIGTERM);
  sigfillset(&usual);
  posix_spawnattr_setsigdefault(&how, &usual);
  posix_spawnattr_setsigmask(&how, &blocked);
  const std::vector<std::string> environment = environment_with(program.environment);
  const int error = ::posix_spawnp(&pid_, program.words[0].c_str(), &files, &how, pointers(program.words).data(),
                                   pointers(environment).data());
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    pid_ = -1;
    fail(Exit::failed, "{} cannot be started: {}", program.words[0], std::strerror(error));
  }
  // A child that hangs and does not read must not block this process.
  if (program.listens) ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  input_ = std::move(in.write);
  out_.open(std::move(output.read));
  errors_.open(std::move(error_output.read));
}

Child::~Child() {
  if (pid_ < 0 || exit_code()) return;
  send_to_group(SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

bool Child::write_line(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  return ::write(input_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::optional<int> Child::exit_code() {
  int status = 0;
  if (!code_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    ended_ = SteadyClock::now();
  }
  return code_;
}

bool Child::is_over() {
  return exit_code() && ((out_.fd() < 0 && errors_.fd() < 0) || seconds_since(ended_) > kForPipes);
}

void Child::send(int signal) const {
  if (!code_) ::kill(pid_, signal);
}
void Child::send_to_group(int signal) const {
  if (!code_) ::kill(-pid_, signal);
}

ProgramResult run_program(const Program& program, double seconds, const std::function<void()>& meanwhile) {
  ProgramResult result;
  const auto collect = [](std::string& into) {
    return [&into](std::string_view line) { into += std::string(line) + "\n"; };
  };
  Child child(program, collect(result.out), collect(result.errors));
  const auto begin = SteadyClock::now();
  while (!child.is_over() && seconds_since(begin) < seconds) {
    LineReader* readers[] = {&child.out(), &child.errors()};
    read_lines(readers, 20);
    if (meanwhile) meanwhile();
  }
  if (child.is_over()) result.code = child.exit_code();
  return result;
}

std::string find_program(std::string_view name) {
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');)
    if (const auto candidate = std::filesystem::path(folder) / name; ::access(candidate.c_str(), X_OK) == 0)
      return candidate.string();
  return {};
}

}  // namespace strata::launcher
