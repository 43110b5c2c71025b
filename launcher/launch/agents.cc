#include "launcher/launch/agents.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/host/host.h"
#include "launcher/launch/ranks/rank_program.h"

namespace strata::launcher {
namespace {

using Clock = SteadyClock;

// Multiplies the timeout. An agent that is cut off ends its ranks after the timeout, so they are gone before launch
// starts them again elsewhere.
constexpr double kTimeoutFactor = 1.25;

constexpr std::size_t kErrors = 16 << 10;  // bytes of an agent's error output; its beginning says why it does not start

constexpr const char* kConnectionEnded = "its connection ended: it is down, or was shut down";
// If a signal ended the agent, or the ssh or srun that started it, the node itself may still be up.
std::string why_ended(Child& child) {
  const int code = child.exit_code().value_or(0);
  if (code <= 128 || code == 255) return kConnectionEnded;
  return fmt::format("its agent was ended by signal {} ({}): by hand, or because memory ran out", code - 128,
                     strsignal(code - 128));
}
std::string connection_ended(const std::string& host) {
  return fmt::format("{} no longer responds: {}", host, kConnectionEnded);
}

}  // namespace

struct Agents::Agent {
  std::string host;
  std::unique_ptr<Child> child;
  std::optional<NodeFacts> facts;
  bool is_other = false;  // another build, whose facts cannot be parsed here
  std::string errors;     // the error output of ssh and the agent
  Clock::time_point heard, pinged;
  double pinged_at = 0;  // on this machine's clock
  std::uint64_t ping = 0;
  std::optional<double> ahead;
  std::uint64_t awaited = 0;  // the question that is being asked; answers to older ones are too late
  std::string answer;

  bool is_connected() { return child && facts && !child->exit_code(); }
};

Agents::Agents(const Allocation& allocation, std::string run, double timeout,
               std::vector<std::filesystem::path> folders, std::function<void()> meanwhile)
    : allocation_(allocation),
      run_(std::move(run)),
      timeout_(timeout > 0 ? timeout : std::numeric_limits<double>::infinity()),
      folders_(std::move(folders)),
      meanwhile_(std::move(meanwhile)) {}

Agents::~Agents() {
  for (const auto& agent : agents_)
    if (agent->is_connected()) agent->child->write_line(fmt::format("{} bye", ++asked_));
  const auto start = Clock::now();
  const auto here = [](const auto& agent) { return agent->is_connected(); };
  while (seconds_since(start) < 2 && std::any_of(agents_.begin(), agents_.end(), here)) {
    const auto all = readers();
    read_lines(all, 20);
  }
}

void Agents::start(const std::vector<Host>& hosts, double seconds) {
  attend(0);  // reads the lines that agents have sent in the meantime
  std::vector<Agent*> started;
  for (const Host& host : hosts) {
    if (Agent* known = find(host.name); known && known->is_connected() && seconds_since(known->heard) < timeout_)
      continue;
    drop(host.name);
    problems_.erase(host.name);
    auto owned = std::make_unique<Agent>();
    Agent& agent = *owned;
    agent.host = host.name;
    std::vector<std::string> words = {own_program().string(), "node-agent", "--run", run_, "--host", host.name};
    words.insert(words.end(), {"--timeout", fmt::format("{}", std::isinf(timeout_) ? 0 : timeout_)});
    for (const auto& folder : folders_) words.insert(words.end(), {"--dir", folder.string()});
    agent.child = std::make_unique<Child>(
        on_node(allocation_, host.name, words, agent_environment(), true),
        [this, &agent](std::string_view line) { handle_line(agent, line); },
        [&agent](std::string_view line) {
          if (agent.errors.size() + line.size() < kErrors) agent.errors += std::string(line) + "\n";
        });
    agents_.push_back(std::move(owned));
    started.push_back(&agent);
  }
  const auto begin = Clock::now();
  const auto waits = [](Agent* agent) { return !agent->facts && !agent->is_other && !agent->child->is_over(); };
  while (std::any_of(started.begin(), started.end(), waits) && seconds_since(begin) < seconds) attend(100);
  // Check all hosts, because an agent that was running before may have ended during the wait.
  for (const Host& host : hosts) {
    Agent* agent = find(host.name);
    if (agent->is_connected()) continue;
    if (agent->facts)
      problems_[host.name] = connection_ended(host.name);
    else if (agent->is_other)
      problems_[host.name] = another_build(host.name);
    else
      problems_[host.name] = agent->child->is_over()
                                 ? why_not_reached(host.name, agent->errors, agent->child->exit_code())
                                 : fmt::format("{} does not respond within {:.0f} s", host.name, seconds);
    drop(host.name);
  }
}

std::string Agents::problem(const std::string& host) const {
  const auto known = problems_.find(host);
  return known != problems_.end() ? known->second : connection_ended(host);
}

void Agents::drop(const std::string& host) {
  std::erase_if(agents_, [&](const auto& agent) { return agent->host == host; });
}

bool Agents::answers(const std::string& host) const {
  Agent* agent = find(host);
  return agent && agent->is_connected();
}

const NodeFacts& Agents::facts(const std::string& host) const {
  Agent* agent = find(host);
  STRATA_CHECK(agent && agent->facts);
  return *agent->facts;
}

std::optional<double> Agents::clock_ahead(const std::string& host) const {
  Agent* agent = find(host);
  return agent ? agent->ahead : std::nullopt;
}

std::vector<LineReader*> Agents::readers() {
  std::vector<LineReader*> out;
  for (const auto& agent : agents_) {
    out.push_back(&agent->child->out());
    out.push_back(&agent->child->errors());
  }
  return out;
}

void Agents::attend(int milliseconds) {
  meanwhile_();
  const auto all = readers();
  read_lines(all, milliseconds);
  ping();
}

void Agents::ping() {
  for (const auto& agent : agents_) {
    if (!agent->is_connected() || seconds_since(agent->pinged) < std::min(1.0, timeout_ / 5)) continue;
    agent->pinged = Clock::now();
    agent->pinged_at = seconds_since_epoch();
    agent->ping = ++asked_;
    agent->child->write_line(fmt::format("{} ping", agent->ping));
  }
}

std::vector<Agents::Lost> Agents::lost() const {
  std::vector<Lost> out;
  for (const auto& agent : agents_) {
    if (!agent->is_connected())
      out.push_back({agent->host, why_ended(*agent->child)});
    else if (seconds_since(agent->heard) > kTimeoutFactor * timeout_)
      out.push_back({agent->host, fmt::format("it was not heard from for {:.0f} s: it is down, or cut off",
                                              seconds_since(agent->heard))});
  }
  return out;
}

std::vector<std::string> Agents::silent(double seconds) {
  std::map<std::string, std::string> lines;
  for (const auto& agent : agents_) lines[agent->host] = "ping";
  const auto answers = ask(lines, seconds);
  std::vector<std::string> out;
  for (const auto& [host, line] : lines)
    if (!answers.contains(host)) out.push_back(host);
  return out;
}

std::vector<std::string> Agents::end_ranks(const std::vector<std::string>& hosts, double seconds) {
  std::map<std::string, std::string> lines;
  for (const std::string& host : hosts) lines[host] = fmt::format("clear {}", seconds);
  std::vector<std::string> out;
  for (const auto& [host, answer] : ask(lines, seconds + 3)) {
    simdjson::dom::parser parser;
    simdjson::dom::array left;
    if (parser.parse(answer)["left"].get(left) == simdjson::SUCCESS && left.size() > 0) out.push_back(host);
  }
  return out;
}

std::map<std::string, std::string> Agents::ask(const std::map<std::string, std::string>& lines, double seconds) {
  std::vector<Agent*> asked;
  for (const auto& [host, line] : lines) {
    Agent* agent = find(host);
    if (!agent || !agent->is_connected()) continue;
    agent->child->write_line(fmt::format("{} {}", ++asked_, line));
    agent->awaited = asked_;
    agent->answer.clear();
    asked.push_back(agent);
  }
  const auto begin = Clock::now();
  const auto waits = [](Agent* agent) { return agent->is_connected() && agent->answer.empty(); };
  while (std::any_of(asked.begin(), asked.end(), waits) && seconds_since(begin) < seconds) attend(100);
  std::map<std::string, std::string> out;
  for (Agent* agent : asked)
    if (!agent->answer.empty()) out[agent->host] = std::exchange(agent->answer, {});
  return out;
}

void Agents::handle_line(Agent& agent, std::string_view line) {
  agent.heard = Clock::now();
  // The greeting of a shell may come first.
  if (line.empty() || line[0] != '{') return;
  if (!agent.facts) {
    try {
      agent.facts = parse_facts(line);
    } catch (const Error&) {
      // Either a shell's greeting is JSON, or another build has other facts.
      agent.is_other = agent.is_other || line.find("\"program\":") != std::string_view::npos;
    }
    return;
  }
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  std::uint64_t number = 0;
  if (parser.parse(simdjson::padded_string(line)).get(root) != simdjson::SUCCESS ||
      root["to"].get(number) != simdjson::SUCCESS)
    return;
  if (number == agent.awaited) agent.answer = line;
  if (number != agent.ping) return;
  // The best estimate is that the node read its clock halfway through the round trip.
  if (double time = 0; root["time"].get(time) == simdjson::SUCCESS)
    agent.ahead = time - (agent.pinged_at + seconds_since(agent.pinged) / 2);
}

Agents::Agent* Agents::find(const std::string& host) const {
  const auto it = std::find_if(agents_.begin(), agents_.end(), [&](const auto& agent) { return agent->host == host; });
  return it == agents_.end() ? nullptr : it->get();
}

}  // namespace strata::launcher
