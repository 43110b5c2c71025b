#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/gpu.h"
#include "launcher/command_line/commands.h"
#include "launcher/command_line/wrong_arguments.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/screen/printable.h"

namespace {

using strata::Exit;

// Refuses empty names of files and folders before any work is done. Later, an empty name would mean the current folder,
// or nothing.
void refuse_empty_names(CLI::App& app) {
  const CLI::Validator not_empty([](std::string& text) { return std::string(text.empty() ? "the name is empty" : ""); },
                                 "", "not empty");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (const char* name :
         {"--out", "--json", "--trace", "--html", "--svg", "--machine", "--model", "--tokenizer", "--dir",
          "--chat-template", "--adapter", "RECIPE", "RUN", "MODEL", "CHECKPOINT", "IN", "PATH", "OTHER", "FOLDER"})
      if (CLI::Option* option = command->get_option_no_throw(name)) option->check(not_empty);
}

// Whether mpirun started several programs and this one is not rank 0. A command that needs only one process then runs
// only on rank 0. Variables left over from another run do not make this process a rank.
bool is_another_rank() {
  if (!strata::launcher::left_over_rank().empty()) return false;
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(variable)) return std::string_view(rank) != "0";
  return false;
}
bool is_of_one_process(std::string_view command) {
  constexpr std::string_view kCommands[] = {"plan",   "export", "tokenize",   "inspect", "doctor", "keys",
                                            "report", "launch", "node-agent", "ctl",     "top"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

// For launch: the words after the first --, which are a command of their own.
std::vector<std::string> after_dashes(int argc, char** argv) {
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view("--"));
  return dashes == end ? std::vector<std::string>() : std::vector<std::string>(dashes + 1, end);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Trains transformers too large for one process: sharded over ranks, with the same bits on any number of them.",
      "strata");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("strata ") + STRATA_VERSION);
  int status = 0;

  using namespace strata::launcher;
  add_train(app, status);
  add_launch(app, status, after_dashes(argc, argv));
  for (const auto add : {add_node_agent, add_plan, add_eval, add_generate, add_predict, add_export, add_tokenize,
                         add_inspect, add_doctor, add_report})
    add(app, status);
  add_keys(app);
  for (const auto add : {add_ctl, add_top, add_calibrate, add_bench}) add(app, status);
  app.footer("strata help COMMAND (or COMMAND --help) lists a command's options.");

  refuse_empty_names(app);
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const auto named = [&](const CLI::App* known) { return argc > 1 && known->get_name() == argv[1]; };
  try {
    if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), named))
      return refuse_as_rank({Exit::usage, unknown_command(argv[1], commands)});
    const bool launches = argc > 1 && argv[1] == std::string_view("launch");
    app.parse(launches ? argc - static_cast<int>(after_dashes(argc, argv).size()) : argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return is_another_rank() ? 0 : app.exit(error);  // --help, --version
    const auto command = std::find_if(commands.begin(), commands.end(), named);
    if (command == commands.end())
      return refuse_as_rank(
          {Exit::usage, argc > 1 ? unknown_option(app, argv[1])
                                 : "strata needs a command, such as strata train RECIPE (see strata --help)"});
    const std::vector<std::string> words(argv + 2, argv + argc);
    std::string what = wrong_arguments(**command, error, words);
    if (argv[1] == std::string_view("launch") && after_dashes(argc, argv).empty())
      what += "; the command for the ranks comes after two dashes: launch ... -- train RECIPE";
    const strata::Error wrong(Exit::usage, what);
    if (is_of_one_process(argv[1])) throw wrong;
    return refuse_as_rank(wrong);
  }
  std::cout.flush();
  if (!std::cout) strata::fail(Exit::failed, "standard output cannot be written");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && is_of_one_process(argv[1]) && is_another_rank()) return static_cast<int>(Exit::done);
  // A write above the file size limit then fails with an error that names the path, instead of raising a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  // A long run must not end because the program that reads its output has ended (`strata train 2>&1 | head`).
  if (argc > 1 && (argv[1] == std::string_view("train") || argv[1] == std::string_view("eval")))
    std::signal(SIGPIPE, SIG_IGN);
  strata::device::prepare_for_gpus();
  // Treat `strata help COMMAND` as `strata COMMAND --help`, and `strata help help` as `strata --help`.
  std::vector<char*> words(argv, argv + argc);
  std::string help = "--help";
  if (argc > 1 && argv[1] == std::string_view("help")) {
    while (words.size() > 1 && words[1] == std::string_view("help")) words.erase(words.begin() + 1);
    words.push_back(help.data());
  }
  try {
    return run(static_cast<int>(words.size()), words.data());
  } catch (const strata::Error& error) {
    strata::launcher::print_failure(error.what(), error.code());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    strata::launcher::print_to_stderr("strata: out of memory outside the plan\n");
  } catch (const std::exception& error) {
    strata::launcher::print_failure(error.what(), Exit::failed);
  }
  return static_cast<int>(Exit::failed);
}
