#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/host/host.h"
#include "base/quantity.h"
#include "base/quote.h"
#include "launcher/control/client/client.h"
#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/service/service_address.h"
#include "launcher/control/watch/dump.h"
#include "launcher/screen/printable.h"
#include "runtime/job/make_job.h"

namespace strata::launcher::control {
namespace {

void print(const std::string& text) {
  const std::string out = printable(text, true);
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0)
    fail(Exit::failed, "standard output cannot be written");
}

void print_json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok())
    fail(Exit::failed, "the answer cannot be written as JSON");
  print(json + "\n");
}

const char* state_text(pb::State state) {
  switch (state) {
    case pb::STARTING:
      return "starting";
    case pb::TRAINING:
      return "training";
    case pb::STOPPING:
      return "stopping on request";
    case pb::ENDING:
      return "ending: its last step is done";
    default:
      return "?";
  }
}

// A run's socket or loopback address on another machine can be reached only from there, so the command runs there over
// ssh: with the program at the path of this one, as on the nodes of a run, or otherwise with the program in PATH.
[[noreturn]] void go_by_ssh(const std::string& what, const CtlOptions& options, const ServiceAddress& address) {
  const std::string own = own_program().string();
  std::string line = fmt::format("p={}; [ -x \"$p\" ] || p=strata; exec \"$p\" {} {}", shell_word(own),
                                 what == "top" ? "top" : "ctl " + what, shell_word(address.grpc_target()));
  if (options.json) line += " --json";
  if (options.at_once) line += " --now";
  for (const auto& [name, file] : {std::pair("--token-file", &options.token_file), std::pair("--ca", &options.ca),
                                   std::pair("--cert", &options.cert), std::pair("--key", &options.key)})
    if (!file->empty()) line += fmt::format(" {} {}", name, shell_word(std::filesystem::absolute(*file).string()));
  std::vector<std::string> words = {"ssh", "-o", "BatchMode=yes", "--", address.host, line};
  if (what == "top" && isatty(STDOUT_FILENO)) words.insert(words.begin() + 1, "-t");
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp("ssh", arguments.data());
  fail(Exit::failed, "the run is on {}, and ssh cannot be started to reach it: {}", address.host, std::strerror(errno));
}

}  // namespace

Target target_of(const CtlOptions& options) {
  const ServiceAddress address = find_service(options.target);
  Target out;
  out.address = address.grpc_target();
  // Plain text is never sent to another machine, even if control.json says so.
  out.tls = address.tls || !options.ca.empty() ||
            (address.socket.empty() && !is_loopback(host_and_port(address.address), "TARGET"));
  out.plain = !out.tls && (!address.socket.empty() || !address.host.empty());
  if (!options.ca.empty()) out.ca = read_pem(options.ca, "--ca");
  if (options.cert.empty() != options.key.empty())
    fail(Exit::usage, "--cert and --key go together: {} is missing", options.cert.empty() ? "--cert" : "--key");
  if (!options.cert.empty()) {
    out.cert = read_pem(options.cert, "--cert");
    out.key = read_key(options.key, "--key");
    require_pair({"--cert", options.cert, out.cert}, {"--key", options.key, out.key});
  }
  if (!options.token_file.empty()) out.token = read_token(options.token_file, "--token-file");
  return out;
}

std::string title_of(const pb::Tier& tier, const pb::RunInfo& run) {
  return tier.name() == runtime::kTierNames[0] ? std::string(runtime::tier_title(0, run.device() == "cpu"))
                                               : tier.name();
}

std::string text_of(const pb::Step& s, std::int64_t max_steps) {
  return fmt::format(
      "step {}{}  loss {}  norm {}  {}  {}{}", s.step(), max_steps > 0 ? fmt::format("/{}", max_steps) : "",
      value_text(s.loss(), 4), value_text(s.grad_norm(), 3),
      tokens_rate_text(static_cast<double>(s.tokens()) / std::max(s.seconds(), 1e-9)),
      step_time_text(s.seconds() * 1e3), s.skipped() ? fmt::format("  skipped (loss scale {:g})", s.loss_scale()) : "");
}

std::string text_of(const pb::Status& s) {
  const pb::RunInfo& run = s.run();
  std::string out = fmt::format("{}", state_text(s.state()));
  if (s.state() == pb::STARTING || (!s.phase().empty() && s.phase() != "training"))
    out += fmt::format(" ({} for {})", s.phase(), duration_text(s.phase_seconds()));
  if (run.parameters() > 0)  // known once the run is planned
    out += fmt::format(", {} of {} parameters, ZeRO-{}", run.family(), count_text(run.parameters()), run.zero_stage());
  out += fmt::format(", pid {} on {}\n", run.pid(), run.host());
  out += s.has_last() ? text_of(s.last(), s.max_steps()) : fmt::format("step {}/{}", s.step(), s.max_steps());
  if (s.seconds_left() > 0) out += fmt::format("  {} left", duration_text(s.seconds_left()));
  std::vector<std::string> tiers;
  for (const pb::Tier& tier : s.memory())
    if (tier.planned_bytes() > 0)
      tiers.push_back(fmt::format("{} {} of {} planned", title_of(tier, run), bytes_text(tier.measured_bytes()),
                                  bytes_text(tier.planned_bytes())));
  if (!tiers.empty()) out += fmt::format("\nmemory of a rank: {}", fmt::join(tiers, ", "));
  out += "\ncheckpoint: ";
  out += s.has_checkpoint()             ? fmt::format("step {}, {} ago, {}", s.checkpoint().step(),
                                                      duration_text(s.now() - s.checkpoint().time()), s.checkpoint().path())
         : run.checkpoint_dir().empty() ? "none: checkpoint.dir is not set"
                                        : "none by this run yet";
  out += "\n";
  for (const pb::Node& node : s.nodes())
    out += fmt::format("{}: {}, last heard from {:.1f} s ago\n", node.name(),
                       node.ranks() == 1
                           ? fmt::format("rank {}", node.first_rank())
                           : fmt::format("ranks {} to {}", node.first_rank(), node.first_rank() + node.ranks() - 1),
                       node.heard_seconds());
  for (const pb::Rank& rank : s.ranks())
    out += fmt::format(
        "rank {}{} on {}: {}{}{}\n", rank.rank(),
        rank.coordinates().empty() ? "" : fmt::format(" ({})", rank.coordinates()), rank.node(), rank.place(),
        rank.compute_seconds() > 0 ? fmt::format(", computes {:.1f} ms", rank.compute_seconds() * 1e3) : "",
        rank.rank() == s.slowest_rank() ? " (the slowest)" : "");
  return out;
}

void run_on_its_host(const std::string& what, const CtlOptions& options) {
  const ServiceAddress address = find_service(options.target);
  if (address.host.empty() || address.host == host_name()) return;
  // On this machine, a loopback address would reach another run or none.
  if (!address.socket.empty() || is_loopback(host_and_port(address.address), "TARGET"))
    go_by_ssh(what, options, address);
}

int ctl(const std::string& what, const CtlOptions& options) {
  if (options.at_once && what != "stop")
    fail(Exit::usage, "ctl {} does not take --now, which is for ctl stop: leave it out", what);
  run_on_its_host(what, options);
  Client client(target_of(options));
  const auto show = [&](const auto& message, const auto& text) {
    options.json ? print_json(message) : print(text(message));
  };
  if (what == "status") {
    show(client.status(), [](const pb::Status& s) { return text_of(s); });
  } else if (what == "plan") {
    show(client.plan(), [](const pb::Plan& p) { return fmt::format("{}\n{}", p.text(), p.recipe()); });
  } else if (what == "checkpoint") {
    show(client.checkpoint(), [](const pb::CheckpointReply& r) {
      return fmt::format("the checkpoint of step {} is durable: {}\n", r.step(), r.path());
    });
  } else if (what == "stop") {
    show(client.stop(options.at_once), [](const pb::StopReply& r) {
      return fmt::format(
          "the run ends after {}, {} a checkpoint\n",
          r.last_step() > 0 ? fmt::format("step {}, or in an evaluation before it", r.last_step()) : "its first step",
          r.checkpoint() ? "with" : "without");
    });
  } else if (what == "dump") {
    show(client.dump(), [](const pb::Dump& d) { return text_of(d); });
  } else {
    const std::int64_t max_steps = client.status().max_steps();
    (void)client.watch(1, [&](const pb::Step& step) {
      show(step, [&](const pb::Step& s) { return text_of(s, max_steps) + "\n"; });
      return true;
    });
  }
  return static_cast<int>(Exit::done);
}

}  // namespace strata::launcher::control
