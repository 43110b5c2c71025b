#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/gpu.h"
#include "launcher/commands/doctor.h"
#include "launcher/commands/eval.h"
#include "launcher/commands/export.h"
#include "launcher/commands/generate.h"
#include "launcher/commands/plan.h"
#include "launcher/commands/predict.h"
#include "launcher/commands/tokenize.h"
#include "launcher/commands/train.h"
#include "launcher/control/client/ctl.h"
#include "launcher/control/client/top.h"
#include "launcher/inspect/inspect.h"
#include "launcher/inspect/show_documents.h"
#include "launcher/launch/launch.h"
#include "launcher/launch/node/agent.h"
#include "launcher/measure/bench/bench.h"
#include "launcher/measure/calibrate.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/report/report.h"
#include "launcher/screen/printable.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/user_path.h"

namespace {

using strata::Exit;

// A number of [least, most], which NaN is not.
CLI::Validator within(double least, double most) {
  const auto check = [least, most](std::string& text) {
    double x = 0;
    if (CLI::detail::lexical_cast(text, x) && x >= least && x <= most) return std::string();
    return fmt::format("{} is not a number from {} to {}", text, least, most);
  };
  return {check, fmt::format("FLOAT in [{} - {}]", least, most), "within"};
}

// Ids between commas, of one argument or of several. Throws CLI::ValidationError.
std::vector<std::uint32_t> token_ids(const std::vector<std::string>& arguments) {
  std::vector<std::uint32_t> out;
  for (std::string_view text : arguments) {
    for (bool last = false; !last;) {
      const std::size_t comma = text.find(',');
      last = comma == std::string_view::npos;
      const std::string_view item = text.substr(0, comma);
      const auto [rest, error] = std::from_chars(item.data(), item.data() + item.size(), out.emplace_back());
      if (error != std::errc() || rest != item.data() + item.size())
        throw CLI::ValidationError(
            "--prompt-tokens",
            fmt::format("\"{}\" is not a token: give ids from 0 to 4294967295, separated by commas, such as 1,2,3",
                        item.substr(0, 64)));
      if (!last) text.remove_prefix(comma + 1);
    }
  }
  return out;
}

// Names of files and folders are refused while nothing is done yet: an empty one would come to the current folder, or
// to nothing, at the end of the work.
void refuse_empty_names(CLI::App& app) {
  const CLI::Validator not_empty([](std::string& text) { return std::string(text.empty() ? "the name is empty" : ""); },
                                 "", "not empty");
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (const char* name :
         {"--out", "--json", "--trace", "--html", "--svg", "--machine", "--model", "--tokenizer", "--dir",
          "--chat-template", "RECIPE", "RUN", "CHECKPOINT", "IN", "PATH", "OTHER", "FOLDER"})
      if (CLI::Option* option = command->get_option_no_throw(name)) option->check(not_empty);
}

// Whether another of the programs that one mpirun started is rank 0: commands of one process are its alone.
bool is_another_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(variable)) return std::string_view(rank) != "0";
  return false;
}
bool is_of_one_process(std::string_view command) {
  constexpr std::string_view kCommands[] = {"plan",   "export", "tokenize",   "inspect", "doctor", "keys",
                                            "report", "launch", "node-agent", "ctl",     "top"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

// What a shell leaves as it is, in --out=~/x.
CLI::Validator as_path() {
  const auto change = [](std::string& text) {
    text = strata::runtime::user_path(text).string();
    return std::string();
  };
  return {change, ""};
}
// An option that names a file or a folder, or several.
template <typename Path>
CLI::Option* add_path(CLI::App* command, std::string name, Path& path, std::string meaning) {
  return command->add_option(std::move(name), path, std::move(meaning))->transform(as_path());
}

template <typename Options>
void add_force(CLI::App* command, Options& options) {
  command->add_flag("--force", options.force, "overwrite a file that this command did not write");
}

template <typename Options>
void add_sets(CLI::App* command, Options& options) {
  command->add_option("--set", options.sets, "override a recipe key: KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

template <typename Options>
void add_recipe(CLI::App* command, Options& options) {
  add_path(command, "RECIPE", options.recipe, "recipe (TOML); without it everything comes from --set");
  add_sets(command, options);
}

template <typename Options>
void add_target(CLI::App* command, Options& options) {
  command->add_option("TARGET", options.target,
                      "a run's checkpoint.dir, unix:PATH or HOST:PORT; without it the only run of this user here");
  add_path(command, "--token-file", options.token_file, "the file of control.token_file");
  add_path(command, "--ca", options.ca, "certificates to know the run's by (PEM)");
  add_path(command, "--cert", options.cert, "own certificate, if the run wants one (PEM)");
  add_path(command, "--key", options.key, "its private key (PEM)");
}

// An argument KEY=VALUE of a recipe's key that no --set goes before; empty: there is none.
std::string assignment_among(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    std::string_view text = argv[i];
    if (std::string_view(argv[i - 1]) == "--set") continue;
    text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
    const std::string_view key = text.substr(0, text.find('='));
    for (const auto& known : strata::runtime::recipe_keys())
      if (key.size() < text.size() && known.name == key) return std::string(text);
  }
  return {};
}

// Of launch: the words behind the first --, which are another command's.
std::vector<std::string> behind_dashes(int argc, char** argv) {
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

  strata::launcher::TrainOptions train;
  auto* command = app.add_subcommand("train", "one rank of a run; mpirun -n N strata train ... for N ranks");
  add_recipe(command, train);
  add_force(command, train);
  command->callback([&] { status = strata::launcher::train(train); });

  strata::launcher::LaunchOptions launch;
  command = app.add_subcommand("launch", "ranks on one or many nodes, and again on those left: launch -- train ...");
  command->footer("Behind -- stands what every rank runs: train [RECIPE] [--set KEY=VALUE ...]");
  command->add_option("--hosts", launch.hosts, "a host file, or n1:8,n2:8 (default: Slurm's, MPIJob's, this machine)");
  command->add_option("--ranks-per-node", launch.ranks_per_node, "ranks on each (default: slots, else GPUs, else 1)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--max-restarts", launch.max_restarts, "after a failure (default: 3 with checkpoint.dir, else 0)")
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--min-nodes", launch.min_nodes, "to go on with (1); at the start: all that are named")
      ->check(CLI::Range(1, 1 << 20));
  add_path(command, "--logs", launch.logs, "folder for a file per rank and events.jsonl");
  command->add_option("--env", launch.env, "NAME or NAME=VALUE for every rank, beside STRATA_*, OMPI_*, NCCL_*")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  command->add_option("--interface", launch.interface, "network of MPI, NCCL and control (default: by the routes)");
  command->add_flag_callback(
      "--no-preflight", [&] { launch.preflight = false; }, "starts without looking at the nodes first");
  command->callback([&] {
    launch.command = behind_dashes(argc, argv);
    status = strata::launcher::launch(launch);
  });

  strata::launcher::AgentOptions agent;
  command = app.add_subcommand("node-agent", "what launch runs on every node")->group("");
  command->add_option("--run", agent.run)->required();
  command->add_option("--timeout", agent.timeout);
  command->add_option("--dir", agent.folders);
  command->callback([&] { status = strata::launcher::node_agent(agent); });

  strata::launcher::PlanOptions plan;
  command = app.add_subcommand("plan", "what a run will do and need; nothing is run");
  add_recipe(command, plan);
  command->add_option("--ranks", plan.ranks, "ranks of the run (default: as many as mpirun starts, else 1)")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--ranks-per-node", plan.ranks_per_node,
                   "ranks per machine, like this one or the --machine file's (default: all, up to its cores or GPUs)")
      ->check(CLI::Range(1, 1 << 20));
  add_path(command, "--json", plan.json, "write the plan as JSON");
  add_path(command, "--trace", plan.trace, "write the timeline, for Perfetto");
  add_path(command, "--machine", plan.machine,
           "machine file of strata calibrate, or of examples/machines: predicts the step's time");
  add_path(command, "--html", plan.html, "write a page to look at: memory over the step, stages, timeline");
  command->add_flag("--stages", plan.stages, "also a table of ZeRO stages 0 to 3");
  command->add_flag("--max-batch", plan.max_batch,
                    "plans the largest micro-batch that fits; with --machine also which one is fastest");
  command->add_flag("--verbose", plan.verbose, "also how many tasks of each kind a step has");
  add_force(command, plan);
  command->callback([&] { status = strata::launcher::plan(plan); });

  strata::launcher::EvalOptions eval;
  command =
      app.add_subcommand("eval", "loss and perplexity on data.validation; mpirun -n N strata eval ... for N ranks");
  add_recipe(command, eval);
  add_path(command, "--json", eval.json, "write the result as JSON");
  add_force(command, eval);
  command->callback([&] { status = strata::launcher::eval(eval); });

  strata::launcher::GenerateOptions generate;
  command = app.add_subcommand("generate", "what a model writes after a prompt; text to stdout");
  add_path(command, "--model", generate.model, "Hugging Face directory, checkpoint, or folder of checkpoints")
      ->required();
  auto* text = command->add_option("--prompt", generate.prompt, "text to continue");
  command
      ->add_option_function<std::vector<std::string>>(
          "--prompt-tokens", [&](const auto& arguments) { generate.prompt_tokens = token_ids(arguments); },
          "token ids to continue, instead of a text: 1,2,3")
      ->excludes(text);
  add_path(
      command, "--chat", generate.chat,
      "messages to answer: a JSON file, or - for standard input; at a terminal - takes what is typed, turn by turn")
      ->excludes(text)
      ->excludes("--prompt-tokens");
  add_path(command, "--chat-template", generate.chat_template,
           "Jinja template of --chat (default: the tokenizer folder's)")
      ->needs("--chat");
  add_path(command, "--tokenizer", generate.tokenizer, "byte, or a Hugging Face directory; default: the model's");
  command->add_option("--max-new-tokens", generate.max_new_tokens, "tokens to write, at most (128)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--temperature", generate.temperature, "of sampling; 0, the default, takes the likeliest token")
      ->check(within(0, 1e6));
  command->add_option("--top-p", generate.top_p, "sample from the likeliest tokens whose probabilities add up to this")
      ->check(within(1e-9, 1));
  command->add_option("--seed", generate.seed, "of sampling")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  command->add_option("--precision", generate.precision, "fp32, bf16 or fp16; default: as the weights are stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  add_sets(command, generate);
  add_path(command, "--json", generate.json, "write tokens and speed as JSON");
  add_force(command, generate);
  command->callback([&] { status = strata::launcher::generate(generate); });

  strata::launcher::PredictOptions predict;
  command =
      app.add_subcommand("predict", "labels and probabilities of texts; mpirun -n N strata predict ... for N ranks");
  add_path(command, "MODEL", predict.model, "Hugging Face directory, checkpoint, or folder of checkpoints")->required();
  add_path(command, "IN", predict.input, ".jsonl, .csv or .tsv with a text in each record")->required();
  add_path(command, "-o,--out", predict.out, "JSONL to write: a line for each text, in the order of the input")
      ->required();
  command->add_option("--threshold", predict.threshold, "probability from which a class of several counts (0.5)")
      ->check(within(0, 1));
  command->add_option("--field", predict.field, "string of a record to take (text)");
  command->add_option("--pair", predict.pair, "string of a record to take as a second text");
  command->add_option("--max-length", predict.max_length, "tokens of a text at most (512, or the model's positions)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  add_path(command, "--tokenizer", predict.tokenizer, "byte, or a Hugging Face directory; default: the model's");
  command->add_option("--precision", predict.precision, "fp32, bf16 or fp16; default: as the weights are stored")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  add_sets(command, predict);
  add_force(command, predict);
  command->callback([&] { status = strata::launcher::predict(predict); });

  strata::launcher::ExportOptions exported;
  command = app.add_subcommand("export", "a checkpoint as a Hugging Face directory");
  add_path(command, "CHECKPOINT", exported.from, "a checkpoint, a folder of them (the newest whole one), or a model")
      ->required();
  add_path(command, "-o,--out", exported.to, "new folder to write")->required();
  command->add_option("--dtype", exported.dtype, "fp32 or bf16 (fp32)")->check(CLI::IsMember({"fp32", "bf16"}));
  command->callback([&] { status = strata::launcher::export_model(exported); });

  strata::launcher::TokenizeOptions tokenize;
  command = app.add_subcommand("tokenize", "text, JSONL or tables to a token file, conversations by a chat template");
  add_path(command, "--tokenizer", tokenize.tokenizer, "byte, or a Hugging Face directory (tokenizer.json or .model)")
      ->required();
  add_path(command, "-o,--out", tokenize.out,
           "token file to write, OUT.bin; OUT.bin.json and others are written beside it")
      ->required();
  add_path(command, "IN", tokenize.inputs,
           "text files, .jsonl, .csv or .tsv files with a document in each record, or -")
      ->required();
  command->add_option("--field", tokenize.field, "string of a record to take (default: text); makes - JSONL too");
  command
      ->add_option(
          "--format", tokenize.format,
          "what records are: text, chat, alpaca, sharegpt, completion; or the files: csv, tsv (default: by their "
          "names and the first record)")
      ->check(CLI::IsMember({"text", "chat", "alpaca", "sharegpt", "completion", "csv", "tsv"}));
  add_path(command, "--chat-template", tokenize.chat_template,
           "Jinja template of conversations (default: the tokenizer folder's)");
  command
      ->add_option("--train-on", tokenize.train_on,
                   "what counts as a label: assistant, last (its last turn), completion, all (default: assistant of "
                   "chats, completion of completions, all of text)")
      ->check(CLI::IsMember({"assistant", "last", "completion", "all"}));
  command->add_option("--labels", tokenize.labels, "fields that say of which class a text is; adds the template")
      ->delimiter(',')
      ->expected(1, 64)
      ->allow_extra_args(false);
  command->add_option("--pair", tokenize.pair, "string of a record to take as a second text");
  command->add_option("--max-length", tokenize.max_length, "tokens of a text at most, with those of the template")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command
      ->add_option("--truncation", tokenize.truncation,
                   "which of two texts is cut: longest_first (default), only_first, only_second, do_not_truncate")
      ->check(CLI::IsMember({"longest_first", "only_first", "only_second", "do_not_truncate"}));
  command->add_option("--eot", tokenize.eot,
                      "token between documents (default: the tokenizer's end of text; byte: none)");
  command->add_flag("--no-eot", tokenize.no_eot, "nothing between documents");
  command->add_flag("--add-special", tokenize.add_special, "with the tokenizer's template around each document");
  command->add_option("--threads", tokenize.threads, "threads (default: all cores)")->check(CLI::Range(1, 1024));
  add_force(command, tokenize);
  command->callback([&] { status = strata::launcher::tokenize(tokenize); });

  std::filesystem::path inspected, compared;
  command =
      app.add_subcommand("inspect", "what a checkpoint, token file, safetensors file or Hugging Face directory holds");
  add_path(command, "PATH", inspected, "what to look into")->required();
  auto* other = add_path(command, "OTHER", compared, "a second checkpoint: how the two differ");
  bool every_tensor = false;
  command
      ->add_flag("--tensors", every_tensor,
                 "mean, deviation and non-finite numbers of each tensor (default: only of those with something wrong)")
      ->excludes(other);
  std::uint64_t shown = 0;
  std::optional<std::filesystem::path> shown_tokenizer;
  command
      ->add_option("--show", shown, "the first N documents of a token file as text; labels in colour, or in brackets")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->excludes(other);
  add_path(command, "--tokenizer", shown_tokenizer, "of --show: byte, or a Hugging Face directory");
  command->callback([&] {
    using strata::launcher::Tensors;
    if (shown > 0) {
      status =
          strata::launcher::show_documents(inspected, shown, shown_tokenizer, isatty(STDOUT_FILENO) == 1, std::cout);
      return;
    }
    status = compared.empty()
                 ? strata::launcher::inspect(inspected, every_tensor ? Tensors::all : Tensors::wrong, std::cout)
                 : strata::launcher::inspect(inspected, compared, std::cout);
  });

  std::vector<std::filesystem::path> folders;
  command = app.add_subcommand("doctor", "what this machine offers, and what to fix");
  add_path(command, "FOLDER", folders, "folders for the nvme tier (default: the current one)");
  command->callback([&] { status = strata::launcher::doctor(std::cout, folders); });

  strata::launcher::ReportOptions report;
  command = app.add_subcommand("report", "what a run wrote about itself, as one HTML page");
  add_path(command, "RUN", report.from, "report.dir of a run, or its report.jsonl")->required();
  add_path(command, "-o,--out", report.out, "HTML file to write")->required();
  add_force(command, report);
  command->callback([&] { status = strata::launcher::report(report); });

  std::string part;
  command = app.add_subcommand("keys", "every key of a recipe: default, allowed values, meaning");
  command->add_option("PART", part, "only keys whose names contain this");
  command->callback(
      [&] { std::cout << (part.empty() ? strata::runtime::recipe_reference() : strata::runtime::keys_about(part)); });

  std::string asked;
  strata::launcher::control::CtlOptions ctl;
  command = app.add_subcommand("ctl", "asks a run: status, watch, checkpoint, stop, dump, plan");
  command->add_option("WHAT", asked, "status, watch, checkpoint, stop, dump or plan")
      ->required()
      ->check(CLI::IsMember({"status", "watch", "checkpoint", "stop", "dump", "plan"}));
  add_target(command, ctl);
  command->add_flag("--json", ctl.json, "the answer as JSON, a line a message");
  command->add_flag("--now", ctl.at_once, "stop: without a checkpoint");
  command->callback([&] { status = strata::launcher::control::ctl(asked, ctl); });

  strata::launcher::control::CtlOptions top;
  command = app.add_subcommand("top", "a live view of a run: progress, loss, ranks, memory, events; q ends it");
  add_target(command, top);
  command->callback([&] { status = strata::launcher::control::top(top); });

  strata::launcher::CalibrateOptions calibrate;
  command = app.add_subcommand("calibrate", "measures this machine for plan --machine; mpirun -n N for N ranks on it");
  add_path(command, "-o,--out", calibrate.out, "machine file to write (TOML)")->required();
  add_path(command, "--dir", calibrate.dirs, "folder of the nvme tier, one per drive: its drive is measured too");
  add_force(command, calibrate);
  command->callback([&] { status = strata::launcher::calibrate(calibrate); });

  strata::launcher::BenchOptions bench;
  command = app.add_subcommand(
      "bench", "one part compared with its floor: step, adam, comm, io, kernels; or what saves memory: memory");
  command->add_option("PART", bench.part, "step, adam, comm, io, kernels or memory")->required();
  add_recipe(command, bench);
  command->add_option("--n", bench.parameters, "adam: parameters")->check(CLI::Range(4096, 1 << 30));
  command->add_option("--steps", bench.steps, "step: measured steps, after two of warm-up; memory: steps of each run")
      ->check(CLI::Range(1, 1000));
  command->add_option("--threads", bench.threads, "adam, kernels: threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  add_path(command, "--dir", bench.dirs, "io: folder on the drive to measure; given several times: striped over them");
  command->add_option("--size", bench.size, "io: bytes per pass; kernels: bytes that one pass moves")
      ->capture_default_str();
  command->add_option("--rounds", bench.rounds, "io: passes")->check(CLI::Range(1, 1000))->capture_default_str();
  command
      ->add_option("--only", bench.only,
                   "memory: some settings alone, KEY=A,B of precision, recompute, accumulation and optimizer")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  add_path(command, "--json", bench.json, "write the figures as JSON");
  add_path(command, "--svg", bench.svg, "memory: write a picture, memory against time");
  add_force(command, bench);
  command->callback([&] { status = strata::launcher::bench(bench); });

  refuse_empty_names(app);
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const auto named = [&](const CLI::App* known) { return argc > 1 && known->get_name() == argv[1]; };
  try {
    if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), named))
      return strata::launcher::refuse_as_rank(
          {Exit::usage, fmt::format("there is no command {} (see strata --help)", argv[1])});
    const bool launches = argc > 1 && argv[1] == std::string_view("launch");
    app.parse(launches ? argc - static_cast<int>(behind_dashes(argc, argv).size()) : argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return is_another_rank() ? 0 : app.exit(error);  // --help, --version
    std::string hint = "see strata --help";
    if (const auto it = std::find_if(commands.begin(), commands.end(), named); it != commands.end())
      hint = "see strata " + (*it)->get_name() + " --help";
    if (const std::string key = assignment_among(argc, argv); !key.empty()) hint = "a key of the recipe: --set " + key;
    const strata::Error wrong(Exit::usage, fmt::format("{} ({})", error.what(), hint));
    if (argc > 1 && is_of_one_process(argv[1])) throw wrong;
    return strata::launcher::refuse_as_rank(wrong);
  }
  std::cout.flush();
  if (!std::cout) strata::fail(Exit::failed, "standard output cannot be written");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && is_of_one_process(argv[1]) && is_another_rank()) return static_cast<int>(Exit::done);
  // A write above the file size limit is then an error with a path, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  // A long run goes on if nobody reads any more what it says (`strata train 2>&1 | head`).
  if (argc > 1 && (argv[1] == std::string_view("train") || argv[1] == std::string_view("eval")))
    std::signal(SIGPIPE, SIG_IGN);
  strata::device::prepare_for_gpus();
  try {
    return run(argc, argv);
  } catch (const strata::Error& error) {
    strata::launcher::complain(error.what(), error.code());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    strata::launcher::tell("strata: out of memory outside the plan\n");
  } catch (const std::exception& error) {
    strata::launcher::complain(error.what(), Exit::failed);
  }
  return static_cast<int>(Exit::failed);
}
