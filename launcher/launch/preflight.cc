#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/quantity.h"
#include "base/random_name.h"
#include "launcher/launch/hosts.h"
#include "launcher/launch/launch.h"
#include "launcher/median.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {
namespace {

constexpr double kSlow = 0.8;          // a node below this share of the median is slow
constexpr double kClockSeconds = 1.0;  // by which clocks may differ
constexpr std::size_t kAtOnce = 16;    // files per question
constexpr const char* kHangs = "it hangs, or is out of memory: end other programs there, or leave it out";
constexpr std::uint64_t kLocked = std::uint64_t{64} << 20;

// A number in an agent's answer. If it has none, adds the reason to `problems`.
std::optional<double> number_in(const std::string& answer, std::string_view key, std::vector<std::string>& problems) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (parser.parse(answer).get(root) != simdjson::SUCCESS) return std::nullopt;
  if (std::string_view problem; root["problem"].get(problem) == simdjson::SUCCESS) problems.emplace_back(problem);
  double value = 0;
  if (root[key].get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// The address to which the node's name resolves. Debian's installer gives a machine's own name the address 127.0.1.1,
// at which other nodes cannot reach it. In that case the first interface counts.
std::string address_by_name(const NodeCheck& node) {
  std::string out = address_of(node.host);
  if (out == "127.0.1.1" && !node.facts.interfaces.empty()) out = node.facts.interfaces[0].address;
  return out;
}

std::string address_on(const NodeCheck& node, const std::optional<std::string>& interface) {
  if (!interface) return address_by_name(node);
  for (const Interface& one : node.facts.interfaces)
    if (one.name == *interface) return one.address;
  return {};
}

// Pairs of neighbours in a ring that starts at `shift`.
std::vector<std::pair<std::size_t, std::size_t>> pairs(std::size_t nodes, std::size_t shift) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t i = 0; i + 1 < nodes; i += 2) out.emplace_back((i + shift) % nodes, (i + 1 + shift) % nodes);
  return out;
}

// Asks only nodes with the same build, because another build may not know the question.
void look_for(std::span<const RecipeFile> files, Agents& agents, std::vector<NodeCheck>& nodes, double seconds) {
  const std::string program = program_hash();
  std::map<std::string, std::string> lines;
  for (const NodeCheck& node : nodes)
    if (node.facts.program == program && node.problems.empty()) lines[node.host] = "sees " + to_json(files);
  const auto answers = agents.ask(lines, seconds);
  for (NodeCheck& node : nodes) {
    if (!lines.contains(node.host)) continue;
    const auto answer = answers.find(node.host);
    if (answer == answers.end()) {
      node.problems.push_back(fmt::format(
          "it has not found the files of the recipe in {:.0f} s: check whether a file system hangs there", seconds));
      continue;
    }
    simdjson::dom::parser parser;
    simdjson::dom::array unseen;
    if (parser.parse(answer->second)["unseen"].get(unseen) != simdjson::SUCCESS) continue;
    for (const simdjson::dom::element one : unseen) node.unseen.emplace_back(std::string_view(one));
  }
}

// Asks in several parts, because a line must fit into a pipe however long the paths are.
void look_for_all(std::span<const RecipeFile> files, Agents& agents, std::vector<NodeCheck>& nodes, double seconds) {
  for (std::size_t at = 0; at < files.size(); at += kAtOnce)
    look_for(files.subspan(at, std::min(kAtOnce, files.size() - at)), agents, nodes, seconds);
}

void measure_links(Agents& agents, std::vector<NodeCheck>& nodes, std::size_t round,
                   const std::optional<std::string>& interface, const PreflightTimeouts& timeouts) {
  const std::string token = random_name();
  const auto both = pairs(nodes.size(), round);
  std::map<std::string, std::string> listen, link;
  for (const auto& [server, client] : both) listen[nodes[server].host] = "listen " + token;
  const auto ports = agents.ask(listen, timeouts.port);
  for (const auto& [server, client] : both) {
    const auto answer = ports.find(nodes[server].host);
    const std::string address = address_on(nodes[server], interface);
    if (answer == ports.end())
      nodes[server].problems.push_back(
          fmt::format("it opened no port for its link in {:.0f} s: {}", timeouts.port, kHangs));
    if (answer == ports.end() || address.empty()) continue;
    if (const auto port = number_in(answer->second, "port", nodes[server].problems))
      link[nodes[client].host] = fmt::format("link {} {:.0f} {}", address, *port, token);
  }
  const auto speeds = agents.ask(link, timeouts.link);
  for (const auto& [server, client] : both) {
    if (!link.contains(nodes[client].host)) continue;
    const auto answer = speeds.find(nodes[client].host);
    if (answer == speeds.end()) {
      nodes[client].problems.push_back(
          fmt::format("the measurement of its link to {} did not end in {:.0f} s", nodes[server].host, timeouts.link));
      continue;
    }
    std::vector<std::string> unheard;
    const auto gbit = number_in(answer->second, "gbit_per_s", nodes[client].problems);
    const auto trip = number_in(answer->second, "microseconds", unheard);
    if (!gbit || !trip) continue;
    // A node that is fast with another partner is not the slow one of a pair.
    for (NodeCheck* node : {&nodes[server], &nodes[client]})
      if (*gbit > node->gbit_per_s.value_or(0)) {
        node->gbit_per_s = gbit;
        node->microseconds = trip;
      }
  }
}

template <typename Value>
std::optional<double> median(const std::vector<NodeCheck>& nodes, Value&& value) {
  std::vector<double> all;
  for (const NodeCheck& node : nodes)
    if (const std::optional<double> one = value(node)) all.push_back(*one);
  return all.empty() ? std::nullopt : std::optional(median_of(std::move(all)));
}

// The value that most nodes have; the first of them if several values are equally common.
template <typename Value>
auto usual(const std::vector<NodeCheck>& nodes, Value&& value) {
  auto best = value(nodes[0]);
  std::ptrdiff_t most = 0;
  for (const NodeCheck& node : nodes) {
    const auto mine = value(node);
    const auto count =
        std::count_if(nodes.begin(), nodes.end(), [&](const NodeCheck& other) { return value(other) == mine; });
    if (count > most) {
      best = mine;
      most = count;
    }
  }
  return best;
}

// Adds a finding for the nodes whose `value` differs from the usual one.
template <typename Value>
void note_others(const std::vector<NodeCheck>& nodes, std::vector<PreflightFinding>& findings, std::string_view what,
                 std::string_view advice, Value&& value) {
  const std::string most = usual(nodes, value);
  for (const NodeCheck& node : nodes)
    if (value(node) != most)
      findings.push_back({fmt::format("{} has a different {} than most nodes ({}, not {}): {}", node.host, what,
                                      value(node), most, advice),
                          false});
}

template <typename Value>
void note_slow(const std::vector<NodeCheck>& nodes, std::vector<PreflightFinding>& findings, std::string_view what,
               std::string_view unit, std::string_view advice, Value&& value) {
  const auto middle = median(nodes, value);
  for (const NodeCheck& node : nodes)
    if (const std::optional<double> mine = value(node); mine && *mine < kSlow * *middle)
      findings.push_back({fmt::format("{} has {:.1f} {} {}, {:.0f}% of the median: {}", node.host, *mine, unit, what,
                                      *mine / *middle * 100, advice),
                          false});
}

std::string gpus_of(const NodeCheck& node) {
  if (node.facts.gpus.empty()) return "no GPU";
  return fmt::format("{} {}", node.facts.gpus.size(), fmt::join(node.facts.gpus, ", "));
}

// If no node sees a file, it does not exist. If only some nodes see it, it is not shared.
void refuse_unseen(const std::vector<NodeCheck>& nodes, std::vector<PreflightFinding>& findings) {
  std::vector<std::string> seen;
  for (const NodeCheck& node : nodes)
    for (const std::string& why : node.unseen) {
      if (std::find(seen.begin(), seen.end(), why) != seen.end()) continue;
      seen.push_back(why);
      std::vector<std::string> hosts;
      for (const NodeCheck& other : nodes)
        if (std::find(other.unseen.begin(), other.unseen.end(), why) != other.unseen.end()) hosts.push_back(other.host);
      findings.push_back({hosts.size() == nodes.size()
                              ? why
                              : fmt::format("on {}, {} (other nodes see it: put it on a file system that all share, or "
                                            "under the same path on each)",
                                            fmt::join(hosts, ", "), why),
                          true});
    }
}

// Virtual machines restored from the same snapshot have the same boot ID, but usually different addresses.
bool are_one(const NodeFacts& a, const NodeFacts& b) {
  return !a.machine.empty() && a.machine == b.machine && a.interfaces == b.interfaces;
}

std::string names_of_one(const std::vector<std::string>& hosts) {
  return fmt::format(
      "{} are names of the same node (one boot, the same addresses): use one name, with all of its slots; if they are "
      "virtual machines restored from one snapshot, start with --no-preflight",
      fmt::join(hosts, " and "));
}

// Refuses several names for one node, whose slots, processors and memory would be counted once per name.
void refuse_second_names(const std::vector<NodeCheck>& nodes, std::vector<PreflightFinding>& findings) {
  std::vector<std::vector<const NodeCheck*>> names;  // for each node
  for (const NodeCheck& node : nodes) {
    const auto same =
        std::ranges::find_if(names, [&](const auto& of) { return are_one(of.front()->facts, node.facts); });
    (same == names.end() ? names.emplace_back() : *same).push_back(&node);
  }
  for (const auto& of_one : names) {
    if (of_one.size() < 2) continue;
    std::vector<std::string> hosts;
    for (const NodeCheck* node : of_one) hosts.push_back(node->host);
    findings.push_back({names_of_one(hosts), true});
  }
}

void check_node(const NodeCheck& node, const runtime::Recipe& recipe, std::string_view program,
                const std::optional<std::string>& interface, std::vector<PreflightFinding>& findings) {
  const auto refuse = [&](std::string text) { findings.push_back({std::move(text), true}); };
  if (node.facts.program != program) refuse(another_build(node.host));
  for (const DriveFact& drive : node.facts.drives)
    if (!drive.problem.empty()) refuse(fmt::format("{}: {}", node.host, drive.problem));
  if (recipe.device.kind == runtime::DeviceKind::cuda && node.facts.gpus.empty())
    refuse(fmt::format("{} has no GPU that can be used, and device.kind is cuda: ssh {} strata doctor says why",
                       node.host, node.host));
  for (const std::string& problem : node.problems) refuse(fmt::format("{}: {}", node.host, problem));
  if (interface && address_on(node, interface).empty()) {
    std::vector<std::string> names;
    for (const Interface& one : node.facts.interfaces) names.push_back(one.name);
    refuse(fmt::format("{} has no interface {} with an address: it has {}", node.host, *interface,
                       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  if (!recipe.memory.nvme.empty() && node.facts.memlock < kLocked)
    findings.push_back(
        {fmt::format("{} lets a process lock {} of memory, too little for the fastest I/O to the drives: "
                     "ulimit -l unlimited there (LimitMEMLOCK=infinity of sshd or slurmd)",
                     node.host, bytes_text(node.facts.memlock)),
         false});
}

}  // namespace

std::vector<NodeCheck> look_at(Agents& agents, const std::vector<Host>& hosts, const runtime::Recipe& recipe,
                               const std::vector<RecipeFile>& files, const std::optional<std::string>& interface,
                               const PreflightTimeouts& timeouts) {
  std::vector<NodeCheck> out;
  std::map<std::string, std::string> products;
  for (const Host& host : hosts) {
    out.push_back({host.name, agents.facts(host.name), {}, {}, {}, {}, {}, {}});
    products[host.name] = recipe.device.kind == runtime::DeviceKind::cpu ? "products cpu" : "products";
  }
  look_for_all(files, agents, out, timeouts.files);
  if (hosts.size() > 1) {
    const auto answers = agents.ask(products, timeouts.products);
    for (NodeCheck& node : out)
      if (const auto answer = answers.find(node.host); answer != answers.end())
        node.gflop_per_s = number_in(answer->second, "gflop_per_s", node.problems);
      else
        node.problems.push_back(
            fmt::format("it did not complete a second of products in {:.0f} s: {}", timeouts.products, kHangs));
    for (const std::size_t round : {0, 1}) measure_links(agents, out, round, interface, timeouts);
  }
  for (NodeCheck& node : out) node.clock_ahead = agents.clock_ahead(node.host);
  return out;
}

std::vector<PreflightFinding> find_problems(const std::vector<NodeCheck>& nodes, const runtime::Recipe& recipe,
                                            std::string_view program, const std::optional<std::string>& interface) {
  std::vector<PreflightFinding> out;
  for (const NodeCheck& node : nodes) check_node(node, recipe, program, interface, out);
  refuse_second_names(nodes, out);
  refuse_unseen(nodes, out);
  note_others(nodes, out, "kind of processor", "bits depend on it; STRATA_CPU_ISA=avx2 makes them equal",
              [](const NodeCheck& node) { return node.facts.processor; });
  note_others(nodes, out, "library", "bits may depend on it; install the same packages",
              [](const NodeCheck& node) { return node.facts.libraries; });
  note_others(nodes, out, "set of GPUs", "bits depend on the kind of GPU; leave the node out, or expect different bits",
              gpus_of);
  note_slow(nodes, out, "of memory", "GiB", "end other programs there",
            [](const NodeCheck& node) { return std::optional(static_cast<double>(node.facts.memory) / 0x1p30); });
  note_slow(nodes, out, "of products", "GFLOP/s",
            "other programs run there, or it is throttled; every step waits for it",
            [](const NodeCheck& node) { return node.gflop_per_s; });
  note_slow(nodes, out, "over its links", "Gbit/s", "look at its cable and switch port; every step waits for it",
            [](const NodeCheck& node) { return node.gbit_per_s; });
  const auto clock = [](const NodeCheck& node) { return node.clock_ahead; };
  const double time = median(nodes, clock).value_or(0);
  for (const NodeCheck& node : nodes)
    if (std::abs(node.clock_ahead.value_or(time) - time) > kClockSeconds)
      out.push_back(
          {fmt::format("{}'s clock is {:.1f} s {} the others': start chrony or systemd-timesyncd there", node.host,
                       std::abs(*node.clock_ahead - time), *node.clock_ahead > time ? "ahead of" : "behind"),
           false});
  return out;
}

std::string why_unfit(Agents& agents, const Host& host, const runtime::Recipe& recipe,
                      const std::vector<RecipeFile>& files, const std::optional<std::string>& interface,
                      const std::set<std::string>& others) {
  std::vector<NodeCheck> nodes = {{host.name, agents.facts(host.name), {}, {}, {}, {}, {}, {}}};
  for (const std::string& other : others)
    if (agents.answers(other) && are_one(agents.facts(other), nodes[0].facts)) return names_of_one({other, host.name});
  look_for_all(files, agents, nodes, PreflightTimeouts().files);
  std::vector<PreflightFinding> findings;
  check_node(nodes[0], recipe, program_hash(), interface, findings);
  for (const std::string& why : nodes[0].unseen) findings.push_back({fmt::format("{}: {}", host.name, why), true});
  std::string out;
  for (const PreflightFinding& finding : findings)
    if (finding.refuses) out += (out.empty() ? "" : "; ") + finding.text;
  return out;
}

std::string table(const std::vector<NodeCheck>& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"  node", "cores", "memory", "memlock", "GPUs", "nvme free", "clock", "products", "link", "round trip"}};
  const auto figure = [](const std::optional<double>& x, auto format) {
    return x ? fmt::format(fmt::runtime(format), *x) : std::string("-");
  };
  for (const NodeCheck& node : nodes) {
    std::uint64_t free = 0;
    for (const DriveFact& drive : node.facts.drives) free += drive.free;
    std::optional<double> clock = node.clock_ahead;     // in ms
    if (clock) clock = std::round(*clock * 1e3) + 0.0;  // +0.0 turns "-0" into "0"
    rows.push_back(
        {"  " + node.host, std::to_string(node.facts.cores), bytes_text(node.facts.memory),
         node.facts.memlock == std::numeric_limits<std::uint64_t>::max() ? "unlimited" : bytes_text(node.facts.memlock),
         node.facts.gpus.empty() ? "-" : std::to_string(node.facts.gpus.size()),
         node.facts.drives.empty() ? "-" : bytes_text(free), figure(clock, "{:+.0f} ms"),
         figure(node.gflop_per_s, "{:.0f} GFLOP/s"), figure(node.gbit_per_s, "{:.1f} Gbit/s"),
         figure(node.microseconds, "{:.0f} us")});
  }
  return table(rows, std::numeric_limits<std::size_t>::max());
}

std::optional<std::string> common_interface(const std::vector<NodeCheck>& nodes) {
  std::optional<std::string> out;
  for (const NodeCheck& node : nodes) {
    const std::string address = address_by_name(node);
    const auto by = std::find_if(node.facts.interfaces.begin(), node.facts.interfaces.end(),
                                 [&](const Interface& one) { return one.address == address; });
    if (by == node.facts.interfaces.end() || (out && *out != by->name)) return std::nullopt;
    out = by->name;
  }
  return out;
}

}  // namespace strata::launcher
