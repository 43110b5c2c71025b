#include "launcher/launch/hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/files/input_file.h"
#include "base/host/host.h"
#include "base/number.h"
#include "base/quantity.h"
#include "base/words.h"
#include "launcher/launch/ranks/child.h"

namespace strata::launcher {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::optional<int> slots_of(std::string_view text) {
  const auto slots = parse_number<int>(text);
  return slots && *slots >= 1 && *slots <= 4096 ? slots : std::nullopt;
}

// Adds a host, or adds slots to the host of that name. As in Open MPI, each mention without a number is one more slot.
void add(std::vector<Host>& hosts, const std::string& name, std::optional<int> slots) {
  const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; });
  if (known == hosts.end())
    hosts.push_back({name, slots});
  else
    known->slots = known->slots.value_or(1) + slots.value_or(1);
}

// Adds one name, or a Slurm list of names, with its slots. Only the characters of host names are accepted, because
// names are put into command lines of ssh and mpirun.
void add_names(std::vector<Host>& hosts, std::string_view names, std::optional<int> slots, const std::string& where) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (names.find('@') != std::string_view::npos)
    fail(Exit::usage, "{}: \"{}\" names a user: give the node's name alone, and User in ~/.ssh/config", where, names);
  const bool list = names.find('[') != std::string_view::npos;
  const auto belongs = [&](char c) {
    return kLetters.find(c) != std::string_view::npos || (list && (c == '[' || c == ']' || c == ','));
  };
  if (names.empty() || names[0] == '-' || names[0] == '.' || !std::all_of(names.begin(), names.end(), belongs))
    fail(Exit::usage, "{}: \"{}\" is not a node's name: a line or word is NAME, NAME:N or NAME slots=N", where, names);
  if (!list) return add(hosts, std::string(names), slots);
  for (const std::string& name : slurm_names(std::string(names))) add(hosts, name, slots);
}

// Adds NAME or NAME:N.
void add_word(std::vector<Host>& hosts, std::string_view word, std::optional<int> slots, const std::string& where) {
  const std::size_t colon = word.rfind(':');
  if (colon == std::string_view::npos) return add_names(hosts, word, slots, where);
  const auto given = slots_of(word.substr(colon + 1));
  if (!given || slots)
    fail(Exit::usage, "{}: \"{}\" is not valid: the number of slots, from 1 to 4096, follows the colon", where, word);
  add_names(hosts, word.substr(0, colon), given, where);
}

void add_line(std::vector<Host>& hosts, std::string_view line, const std::string& where) {
  // Open MPI also accepts "slots = 2".
  std::string joined;
  for (const char c : line) {
    const bool space = c == ' ' || c == '\t' || c == '\r';
    if (c == '=') joined.erase(joined.find_last_not_of(" \t\r") + 1);
    if (!space || !joined.ends_with('=')) joined += c;
  }
  std::istringstream words{joined};
  std::string name, word;
  std::optional<int> slots, most;
  words >> name;
  while (words >> word) {
    const std::string key = word.substr(0, word.find('='));
    const auto value =
        word.size() > key.size() ? slots_of(std::string_view(word).substr(key.size() + 1)) : std::nullopt;
    if (!value || (key != "slots" && key != "max_slots" && key != "max-slots"))
      fail(Exit::usage, "{}: \"{}\" is not valid: a line is NAME, NAME:N or NAME slots=N, with N from 1 to 4096", where,
           word);
    std::optional<int>& known = key == "slots" ? slots : most;
    if (known) fail(Exit::usage, "{}: \"{}\" comes after another {}: give one", where, word, key);
    known = value;
  }
  if (slots && most && *slots > *most)
    fail(Exit::usage, "{}: slots={} is more than max_slots={}: correct one of them", where, *slots, *most);
  add_word(hosts, name, slots, where);
}

// Splits at commas outside of brackets.
std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    out.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return out;
}

std::string figures(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

std::vector<Host> read_hosts(const std::string& text) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(text, ignored), is_path = text.find('/') != std::string::npos;
  if (is_folder && is_path) fail(Exit::usage, "--hosts {} is a folder: give a host file, or names of nodes", text);
  if (!is_folder && std::filesystem::exists(text, ignored)) {
    constexpr std::size_t kMaxBytes = std::size_t{1} << 24;
    return parse_host_file(read_input(text, "--hosts " + text, kMaxBytes, Pipes::handed_over), text);
  }
  if (is_path) fail(Exit::usage, "--hosts {}: there is no such file", text);
  std::vector<Host> hosts;
  for (const std::string_view word : split_at_commas(text)) add_word(hosts, word, std::nullopt, "--hosts " + text);
  return hosts;
}

std::vector<Host> parse_host_file(std::string_view text, const std::string& where) {
  std::vector<Host> hosts;
  int number = 0;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (std::string_view line : split_list(text, '\n')) {
    ++number;
    const auto is_text = [](char c) { return static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\r'; };
    if (const auto at = std::find_if_not(line.begin(), line.end(), is_text); at != line.end())
      fail(Exit::usage, "{} line {} has the byte 0x{:02x}: a host file is plain text (ASCII or UTF-8)", where, number,
           static_cast<unsigned char>(*at));
    line = trimmed(line.substr(0, line.find('#')));
    if (!line.empty()) add_line(hosts, line, fmt::format("{} line {}", where, number));
  }
  if (hosts.empty()) fail(Exit::usage, "{}: no line names a node", where);
  return hosts;
}

std::vector<std::string> slurm_names(const std::string& list) {
  if (find_program("scontrol").empty())
    fail(Exit::usage,
         "\"{}\" is a Slurm list of nodes, but there is no scontrol in PATH to read it: write the names out", list);
  const ProgramResult result = run_program({{"scontrol", "show", "hostnames", list}}, 30);
  std::vector<std::string> names;
  std::istringstream lines(result.out);
  for (std::string name; lines >> name;) names.push_back(name);
  if (result.code == 0 && !names.empty()) return names;
  if (!result.code)
    fail(Exit::usage, "\"{}\": scontrol, which reads lists of nodes, does not answer: write the names out", list);
  // scontrol may lack its configuration, so the list itself may be correct.
  const std::string why = result.errors.substr(0, result.errors.find('\n'));
  fail(Exit::usage,
       "\"{}\" could not be read by scontrol show hostnames ({}): correct the list, or write the names out", list,
       why.empty() ? fmt::format("exit code {}", *result.code) : why);
}

std::string address_of(const std::string& name) {
  const AddressList found = look_up(name).addresses;
  for (const int family : {AF_INET, AF_INET6})
    for (const addrinfo* one = found.get(); one; one = one->ai_next)
      if (one->ai_family == family) return figures(one->ai_addr, one->ai_addrlen);
  return {};
}

bool is_this_machine(const std::string& name) {
  if (name == host_name() || name == "localhost") return true;
  const std::string address = address_of(name);
  ifaddrs* list = nullptr;
  if (address.empty() || ::getifaddrs(&list) != 0) return false;
  bool here = false;
  for (const ifaddrs* one = list; one; one = one->ifa_next)
    if (one->ifa_addr && (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6))
      here |= address ==
              figures(one->ifa_addr, one->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  ::freeifaddrs(list);
  return here;
}

void require_addresses(const std::vector<Host>& hosts, const std::string& origin, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    std::vector<std::string> missing;
    for (const Host& host : hosts)
      if (!look_up(host.name).addresses) missing.push_back(host.name);
    if (missing.empty()) return;
    if (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      continue;
    }
    // A word without a slash may be either a host or a file.
    std::error_code ignored;
    const auto is_folder = [&](const std::string& name) { return std::filesystem::is_directory(name, ignored); };
    if (const auto folder = std::find_if(missing.begin(), missing.end(), is_folder); folder != missing.end())
      fail(Exit::usage, "{} in {} is a folder here, and a node without an address: give a host file, or names of nodes",
           *folder, origin);
    fail(Exit::usage, "{} {} no address{}: correct the name in {}, or make it known (/etc/hosts, DNS)",
         fmt::join(missing, ", "), for_count(missing.size(), "has", "have"),
         hosts.size() == 1 && origin == "--hosts" ? ", and there is no file of that name" : "", origin);
  }
}

void require_network_names(const std::vector<Host>& hosts, const std::string& origin) {
  if (hosts.size() > 1 && std::ranges::any_of(hosts, [](const Host& host) { return host.name == "localhost"; }))
    fail(Exit::usage,
         "{} names localhost next to other nodes, each of which calls itself localhost: write {} instead, or a name "
         "that all nodes know",
         origin, host_name());
}

}  // namespace strata::launcher
