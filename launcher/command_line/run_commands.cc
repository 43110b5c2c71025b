#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_writer.h"
#include "launcher/command_line/argument_kinds.h"
#include "launcher/command_line/commands.h"
#include "launcher/commands/commands.h"
#include "launcher/launch/launch.h"
#include "launcher/launch/node/agent.h"
#include "runtime/recipe/keys.h"

namespace strata::launcher {

void add_train(CLI::App& app, int& status) {
  const auto [command, options] = add_command(
      app, status, "train", "run one rank of a training run; mpirun -n N strata train ... for N ranks", train);
  add_recipe(command, *options);
  add_force(command, *options);
}

void add_launch(CLI::App& app, int& status, std::vector<std::string> ranks_command) {
  const auto options = std::make_shared<LaunchOptions>();
  auto* command = app.add_subcommand(
      "launch", "start ranks on one or more nodes, and restart them on the surviving nodes: launch -- train ...");
  command->footer("After --, give the command that every rank runs: train [RECIPE] [--set KEY=VALUE ...]");
  command->add_option(
      "--hosts", options->hosts,
      "a host file, or n1:8,n2:8 (default: the nodes of the Slurm job or MPIJob, otherwise this machine)");
  add_checked(command, "--ranks-per-node", options->ranks_per_node, integer(1, 4096),
              "ranks per node (default: its slots, otherwise its GPUs, otherwise 1)");
  add_checked(command, "--max-restarts", options->max_restarts, integer(0, 1 << 20),
              "maximum number of restarts after failures (default: 3 with checkpoint.dir, otherwise 0)");
  add_checked(command, "--min-nodes", options->min_nodes, integer(1, 1 << 20),
              "minimum number of nodes to start and to continue with (default: all to start, 1 to continue)");
  add_path(command, "--logs", options->logs, "folder for one log file per rank and events.jsonl");
  given_repeatedly(command->add_option(
      "--env", options->env, "NAME or NAME=VALUE to pass to every rank, in addition to STRATA_*, OMPI_*, NCCL_*"));
  command->add_option(
      "--interface", options->interface,
      "network interface for MPI, NCCL and control (default: the one to which the nodes' names resolve)");
  command->add_flag_callback(
      "--no-preflight", [options] { options->preflight = false; }, "start without checking the nodes first");
  command->callback([options, &status, ranks_command = std::move(ranks_command)] {
    options->command = ranks_command;
    status = launch(*options);
  });
}

void add_node_agent(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "node-agent", "the process that launch runs on every node", node_agent);
  command->group("");
  command->add_option("--run", options->run)->required();
  command->add_option("--host", options->host)->required();
  command->add_option("--timeout", options->timeout)->check(within(0, 1e9));
  given_repeatedly(command->add_option("--dir", options->folders));
}

void add_plan(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "plan", "show what a run would do and need, without running it", plan);
  add_recipe(command, *options);
  add_checked(command, "--ranks", options->ranks, integer(1, 1 << 20),
              "number of ranks (default: as many as mpirun starts, otherwise 1)");
  add_checked(command, "--rank", options->rank, integer(0, (1 << 20) - 1),
              "plan this rank of the pipeline (default: a rank of the stage with the largest peak)");
  add_checked(command, "--ranks-per-node", options->ranks_per_node, integer(1, 1 << 20),
              "ranks per machine, like this one or the --machine file's (default: all, up to its cores or GPUs)");
  add_path(command, "--json", options->json, "write the plan as JSON");
  add_path(command, "--trace", options->trace, "write the timeline, for Perfetto");
  add_path(command, "--machine", options->machine,
           "machine file of strata calibrate or from examples/machines, to predict the time per step");
  add_path(command, "--html", options->html, "write an HTML page: memory over the step, stages, timeline");
  command->add_flag("--stages", options->stages, "also print a table of ZeRO stages 0 to 3");
  command->add_flag("--table", options->table,
                    "also print a table of every precision and recomputation, and of stages for several ranks");
  command->add_flag("--max-batch", options->max_batch,
                    "plan the largest micro-batch that fits; with --machine also find the fastest one");
  command->add_flag("--verbose", options->verbose, "also print the number of tasks of each kind in a step");
  add_force(command, *options);
}

void add_eval(CLI::App& app, int& status) {
  const auto [command, options] =
      add_command(app, status, "eval",
                  "compute loss and metrics on data.validation; mpirun -n N strata eval ... for N ranks", eval);
  add_recipe(command, *options);
  add_adapter(command, *options, "a peft folder with an adapter of model.path");
  add_path(command, "--json", options->json, "write the result as JSON");
  add_force(command, *options);
}

void add_keys(CLI::App& app) {
  const auto part = std::make_shared<std::string>();
  auto* command = app.add_subcommand("keys", "list recipe keys: default, allowed values, meaning");
  command->add_option("PART", *part,
                      "only keys with this text in their names, values or meaning, and other tools' names for them");
  command->callback(
      // Prints all keys as text on a terminal, and as a Markdown page into a pipe: that page is docs/recipe.md.
      [part] {
        const bool page = part->empty() && isatty(STDOUT_FILENO) == 0;
        std::cout << (page ? runtime::recipe_reference() : runtime::keys_about(*part));
      });
}

}  // namespace strata::launcher
