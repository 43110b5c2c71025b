#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "launcher/command_line/argument_kinds.h"
#include "launcher/command_line/commands.h"
#include "launcher/commands/commands.h"
#include "launcher/control/client/client.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/calibrate.h"
#include "launcher/report/report.h"

namespace strata::launcher {
namespace {

template <typename Options>
void add_target(CLI::App* command, Options& options) {
  command->add_option("TARGET", options.target,
                      "a run's checkpoint.dir, unix:PATH or HOST:PORT; without it the only run of this user here");
  add_path(command, "--token-file", options.token_file, "the file of control.token_file");
  add_path(command, "--ca", options.ca, "CA certificates that signed the run's certificate (PEM)");
  add_path(command, "--cert", options.cert, "client certificate, if the run requires one (PEM)");
  add_path(command, "--key", options.key, "its private key (PEM)");
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  const auto folders = std::make_shared<std::vector<std::filesystem::path>>();
  auto* command = app.add_subcommand("doctor", "show what this machine offers and what to fix");
  add_path(command, "FOLDER", *folders, "folders for the nvme tier (default: the current one)");
  command->callback([folders, &status] { status = doctor(std::cout, *folders); });
}

void add_report(CLI::App& app, int& status) {
  const auto [command, options] = add_command(app, status, "report", "make one HTML page of a run's report", report);
  add_path(command, "RUN", options->from, "report.dir of a run, or its report.jsonl")->required();
  add_path(command, "-o,--out", options->out, "HTML file to write")->required();
  add_force(command, *options);
}

void add_ctl(CLI::App& app, int& status) {
  const auto options = std::make_shared<control::CtlOptions>();
  auto* command = app.add_subcommand("ctl", "query or control a run: status, watch, checkpoint, stop, dump, plan");
  const auto asked = std::make_shared<std::string>();
  command->add_option("WHAT", *asked, "status, watch, checkpoint, stop, dump or plan")
      ->required()
      ->check(CLI::IsMember({"status", "watch", "checkpoint", "stop", "dump", "plan"}));
  add_target(command, *options);
  command->add_flag("--json", options->json, "print the answer as JSON, one message per line");
  command->add_flag("--now", options->at_once, "stop: without a checkpoint");
  command->callback([options, asked, &status] { status = control::ctl(*asked, *options); });
}

void add_top(CLI::App& app, int& status) {
  const auto [command, options] = add_command(
      app, status, "top", "show a live view of a run: progress, loss, ranks, memory, events; q quits", control::top);
  add_target(command, *options);
}

void add_calibrate(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "calibrate",
                  "measure this machine for plan --machine; mpirun -n N strata calibrate ... for N ranks", calibrate);
  add_path(command, "-o,--out", options->out, "machine file to write (TOML)")->required();
  add_path(command, "--dir", options->dirs, "folder of the nvme tier, to measure its drive, too; give one per drive");
  add_force(command, *options);
}

void add_bench(CLI::App& app, int& status) {
  const auto [command, options] = add_command(
      app, status, "bench",
      "benchmark one component against the hardware's limit, or compare memory-saving settings (memory)", bench);
  command->add_option("PART", options->part, "step, adam, comm, io, kernels or memory")->required();
  add_recipe(command, *options);
  add_checked(command, "--n", options->parameters, integer(4096, 1 << 30), "adam: parameters");
  add_checked(command, "--steps", options->steps, integer(1, 1000),
              "step: measured steps, after two warmup steps; memory: steps of each run, at least 3");
  add_checked(command, "--threads", options->threads, integer(1, 1024), "adam, kernels: threads (default: all cores)");
  add_path(command, "--dir", options->dirs,
           "io: folder on the drive to measure; given several times: striped over them");
  command->add_option("--size", options->size, "io: bytes per pass; kernels: bytes that one pass moves")
      ->capture_default_str();
  add_checked(command, "--rounds", options->rounds, integer(1, 1000), "io: passes")->capture_default_str();
  given_repeatedly(command->add_option(
      "--only", options->only,
      "memory: only these settings, KEY=A,B; KEY is precision, recompute, accumulation or optimizer"));
  add_path(command, "--json", options->json, "write the figures as JSON");
  add_path(command, "--svg", options->svg, "memory: write a chart of memory against time");
  add_force(command, *options);
}

}  // namespace strata::launcher
