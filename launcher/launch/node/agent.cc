#include "launcher/launch/node/agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/json/json_writer.h"
#include "base/number.h"
#include "base/thread.h"
#include "launcher/launch/node/facts.h"
#include "launcher/launch/ranks/child.h"

namespace strata::launcher {
namespace {

using Clock = SteadyClock;

constexpr double kToClear = 5;  // seconds for ranks of an earlier start to end

// Writes lines to launch, from several threads.
class Replies {
 public:
  void say(const std::string& line) {
    const std::lock_guard lock(mutex_);
    const std::string text = line + "\n";
    // Ignore errors: if launch has ended, the thread that reads its commands notices.
    (void)!::write(STDOUT_FILENO, text.data(), text.size());
  }

 private:
  std::mutex mutex_;
};

// Slow questions are answered in separate threads, so that pings are still answered.
class Agent {
 public:
  explicit Agent(const AgentOptions& options) : options_(options) {}

  int run() {
    LineReader input([this](std::string_view line) { handle_line(std::string(line)); });
    input.open(Descriptor(::dup(STDIN_FILENO)));
    end_older_agents(options_.run, options_.host);
    end_ranks(options_.run, kToClear);
    replies_.say(to_json(facts_here(options_.folders)));
    heard_ = Clock::now();
    while (!done_) {
      LineReader* readers[] = {&input};
      read_lines(readers, 200);
      const bool cut_off = options_.timeout > 0 && seconds_since(heard_) > options_.timeout;
      if (!done_ && (input.fd() < 0 || cut_off)) {
        end_ranks(options_.run, 0);
        return static_cast<int>(Exit::failed);
      }
    }
    return static_cast<int>(Exit::done);
  }

 private:
  void handle_line(const std::string& line) {
    heard_ = Clock::now();
    std::istringstream words(line);
    std::string number, word;
    words >> number >> word;
    if (word == "bye") {
      done_ = true;
    } else if (word == "ping") {
      reply(number, JsonObject().add("time", Decimals{seconds_since_epoch(), 6}));
    } else if (word == "clear") {
      double seconds = 0;
      words >> seconds;
      const auto left = [this, seconds] {
        return JsonObject().add("left", JsonArray().add_all(end_ranks(options_.run, seconds)));
      };
      run_in_thread(left, number);
    } else if (word == "sees") {
      std::string files;
      std::getline(words, files);
      const auto unseen = [files] {
        return JsonObject().add("unseen", JsonArray().add_all(unseen_here(parse_recipe_files(files))));
      };
      run_in_thread(unseen, number);
    } else if (word == "products") {
      std::string where;
      words >> where;
      const auto speed = [where] {
        return JsonObject().add("gflop_per_s", Decimals{products_per_second(1.0, where != "cpu"), 3});
      };
      run_in_thread(speed, number);
    } else if (word == "listen") {
      std::string token;
      words >> token;
      while_listening(token, number);
    } else if (word == "link") {
      std::string address, token;
      int port = 0;
      words >> address >> port >> token;
      run_in_thread([=] { return json_of(measure_link(address, port, token)); }, number);
    }
  }

  void reply(const std::string& number, const JsonObject& result) {
    replies_.say(JsonObject().add("to", JsonText{number}).add_all(result).text());
  }

  template <typename F>
  void run_in_thread(F work, const std::string& number) {
    threads_.push_back(start_thread("a measurement of launch's agent", [this, work, number] {
      JsonObject result;
      try {
        result = work();
      } catch (const std::exception& error) {
        result.add("problem", error.what());
      }
      reply(number, result);
    }));
  }
  void while_listening(const std::string& token, const std::string& number) {
    try {
      auto listener = std::make_shared<LinkListener>(token);
      reply(number, JsonObject().add("port", listener->port()));
      threads_.push_back(start_thread("a measurement of launch's agent", [listener] { listener->serve_one(10); }));
    } catch (const Error& error) {
      reply(number, JsonObject().add("problem", error.what()));
    }
  }

  AgentOptions options_;
  Replies replies_;
  Clock::time_point heard_;
  bool done_ = false;
  std::deque<std::jthread> threads_;  // declared last, so that they end before the members that they use
};

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The variables with which a process or thread was started, as NAME=VALUE between zero bytes; empty if this process may
// not read them.
std::string environment_of(const std::filesystem::path& process) {
  const std::string variables = content(process / "environ");
  return variables.empty() ? "" : std::string(1, '\0') + variables;
}

// Containers may use the same process IDs, so a process with another network namespace belongs to another node.
bool shares_network(const std::filesystem::path& process) {
  std::error_code ignored;
  return std::filesystem::read_symlink(process / "ns/net", ignored) ==
         std::filesystem::read_symlink("/proc/self/ns/net", ignored);
}

// Decides by the environment with which the process was started. If the first thread has ended before the others, its
// environment is no longer readable, but theirs is.
bool is_of_run(const std::filesystem::path& process, const std::string& run) {
  const std::string sign = std::string(1, '\0') + "STRATA_LAUNCH=" + run + std::string(1, '\0');
  if (const std::string all = environment_of(process); !all.empty())
    return all.find(sign) != std::string::npos && shares_network(process);
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(process / "task", ignored))
    if (environment_of(thread.path()).find(sign) != std::string::npos && shares_network(thread.path())) return true;
  return false;
}

// The process IDs of this node's other processes that belongs() accepts. It receives each one's folder in /proc.
template <typename Belongs>
std::vector<int> processes(Belongs&& belongs) {
  std::vector<int> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto pid = parse_number<int>(entry.path().filename().string());
    if (pid && *pid != ::getpid() && belongs(entry.path())) out.push_back(*pid);
  }
  return out;
}

// Whether the process still has a thread. The first one may have ended before the others.
bool is_left(int pid) {
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    const std::string text = content(thread.path() / "stat");
    const std::size_t name_end = text.rfind(") ");
    if (name_end != std::string::npos && text.find_first_of("ZX", name_end) != name_end + 2) return true;
  }
  return false;
}

}  // namespace

void end_older_agents(const std::string& run, const std::string& host) {
  // The words directly follow the program's path. In the command line of srun, which starts agents on other nodes, they
  // come later.
  const std::string words = fmt::format("node-agent{0}--run{0}{1}{0}--host{0}{2}{0}", '\0', run, host);
  const auto is_agent = [&](const std::filesystem::path& process) {
    const std::string line = content(process / "cmdline");
    return line.compare(std::min(line.find('\0'), line.size() - 1) + 1, words.size(), words) == 0 &&
           shares_network(process);
  };
  for (const int pid : processes(is_agent)) ::kill(pid, SIGKILL);
}

std::vector<int> end_ranks(const std::string& run, double seconds) {
  if (run.empty()) return {};
  std::set<int> ended;
  // Two rounds, so that processes that started during the first one are ended too.
  for (int round = 0; round < 2; ++round)
    for (const int pid : processes([&](const auto& process) { return is_of_run(process, run); }))
      if (::kill(pid, SIGKILL) == 0) ended.insert(pid);
  const auto begin = Clock::now();
  const auto gone = [](int pid) { return !is_left(pid); };
  while (std::erase_if(ended, gone), !ended.empty()) {
    if (seconds_since(begin) >= seconds) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return {ended.begin(), ended.end()};
}

int node_agent(const AgentOptions& options) {
  // scancel or the end of a session signals all processes, and so asks the ranks to stop, which takes them a while. The
  // agent therefore ignores these signals and ends when its input ends.
  for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
  return Agent(options).run();
}

}  // namespace strata::launcher
