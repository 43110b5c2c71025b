#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "comm/same_files.h"
#include "launcher/adapter_option.h"
#include "launcher/commands/commands.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/rank/stop_signal.h"
#include "launcher/reply_generator.h"
#include "launcher/screen/printable.h"
#include "models/files/config.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/run/reports/report.h"
#include "text/chat/chat_template.h"
#include "text/chat/dialogue.h"
#include "text/tokenizer.h"
#include "text/unicode/utf8.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;

// The whole content of a file, or of standard input ("-").
std::string read_all(const std::string& name) {
  if (name != "-") {
    const MappedFile file(name);
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// The turn typed at rank 0's terminal, on every rank; nullopt at the end of input.
std::optional<std::string> typed_turn(comm::World& world) {
  std::string line;
  if (world.rank() == 0) {
    fmt::print("> ");
    std::fflush(stdout);
    std::string typed;
    while (typed.find_first_not_of(" \t\r") == std::string::npos && std::getline(std::cin, typed)) {
    }
    if (std::cin) line = "+" + typed;
  }
  const std::string all = world.exchange(line).front();
  return all.empty() ? std::nullopt : std::optional(all.substr(1));
}

// A prompt: tokens, a text, or a conversation.
struct GenerationInput {
  std::vector<std::uint32_t> prompt, ends;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null: prompt and output are tokens
  std::optional<text::Dialogue> dialogue;
  bool typed = false;  // turns are typed at the terminal one by one
};

// Accepts messages as JSON. Any other text is a single turn of the user.
void take_chat(text::Dialogue& dialogue, const std::string& chat, const std::string& name) {
  constexpr const char* kWhite = " \t\r\n";
  const std::size_t first = chat.find_first_not_of(kWhite);
  if (first == std::string::npos) fail(Exit::usage, "{} is empty: give messages as JSON, or a text to answer", name);
  if (chat[first] == '[' || chat[first] == '{')
    dialogue.read(chat, name);
  else
    dialogue.ask(chat.substr(first, chat.find_last_not_of(kWhite) + 1 - first));
}

// The tokenizer in the model's folder; null if the folder has none.
std::unique_ptr<text::Tokenizer> own_tokenizer(const std::filesystem::path& folder) {
  try {
    return text::load_tokenizer(folder);
  } catch (const Error& error) {
    if (error.code() != Exit::usage) throw;
    fail(Exit::usage, "{}: give --tokenizer byte or a Hugging Face directory", error.what());
  }
}

// prints: whether this rank prints notes about the input.
GenerationInput read_generation_input(const GenerateOptions& options, const runtime::ModelFolder& folder,
                                      const std::string& chat, bool typed, bool prints) {
  GenerationInput out{.prompt = options.prompt_tokens, .typed = typed};
  folder.require_base();
  const auto own_folder = folder.hugging_face();
  if (own_folder) out.ends = models::end_tokens(*own_folder);
  if (options.prompt || options.chat) {
    if (!options.tokenizer && !own_folder)
      fail(Exit::usage, "{} names no tokenizer: give --tokenizer byte or a Hugging Face directory",
           folder.path().string());
    const std::filesystem::path where = options.tokenizer ? *options.tokenizer : *own_folder;
    out.tokenizer = options.tokenizer ? text::load_tokenizer(where) : own_tokenizer(where);
    if (prints) print_notes(out.tokenizer->notes(), where.string());
    if (const auto end = out.tokenizer->end_of_text()) out.ends.push_back(*end);
    if (options.chat) {
      auto made = text::ChatTemplate::find(where, options.chat_template, *out.tokenizer);
      if (!made)
        fail(Exit::usage,
             "{} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): give "
             "--chat-template FILE",
             where.string());
      if (prints) print_notes(made->notes());
      out.dialogue.emplace(std::move(*made), *out.tokenizer);
      if (!typed) take_chat(*out.dialogue, chat, *options.chat == "-" ? "standard input" : *options.chat);
      if (prints) print_notes(out.dialogue->notes());
      for (const std::uint32_t end : out.dialogue->turn_ends()) out.ends.push_back(end);
    } else {
      out.prompt = out.tokenizer->encode(*options.prompt, true);
    }
  }
  if (out.dialogue && !typed) out.prompt = out.dialogue->prompt();
  if (out.prompt.empty() && !typed)
    fail(Exit::usage, "{}: generation needs a token to start from",
         options.prompt || options.chat ? "the prompt is empty, and its tokenizer puts no token before it"
                                        : "there is no prompt (--prompt TEXT, --chat FILE or --prompt-tokens IDS)");
  return out;
}

// Answers typed turns until the input ends.
void run_dialogue(GenerationInput& input, ReplyGenerator& generator, comm::World& world, const StopSignal& stop) {
  const bool prints = world.rank() == 0;
  while (const auto turn = typed_turn(world)) {
    agree(world, [&] {
      input.dialogue->ask(*turn);
      input.prompt = input.dialogue->prompt();
    });
    text::StreamDecoder decoder(*input.tokenizer);
    const auto write = [&](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    const Generated result =
        generator.answer(input.prompt, input.ends, input.tokenizer.get(), stop, [&](std::uint32_t token) {
          if (prints) write(decoder.add(token));
        });
    if (prints) write(decoder.finish() + "\n");
    input.dialogue->answered(input.tokenizer->decode(result.tokens));
  }
  if (prints) fmt::print("\n");
}

void run(GenerateOptions options, comm::World& world, const StopSignal& stop) {
  const bool prints = world.rank() == 0;
  take_base_of(options.model, options.adapter, options.sets, world);
  GenerationInput input;
  std::optional<runtime::ReportFile> json;
  const auto require_same = [&](const char* what, const std::string& mine) {
    const std::vector<std::string> all = world.exchange(mine);
    const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != all[0]; });
    if (other != all.end())
      throw AgreedError(Exit::usage,
                        fmt::format("rank {} was given a different {} than rank 0: start all ranks with the "
                                    "same command",
                                    other - all.begin(), what));
  };
  require_same("model", options.model.string());
  const CoreShare share = bind_cores(world.node_rank(), world.node_size());
  // Held until the weights have been read, because a run may be writing newer checkpoints to the folder.
  const auto folder = runtime::agree_on_model(options.model, share.cores, world, note);
  // mpirun passes standard input to rank 0 only.
  const bool typed =
      !world.exchange(prints && options.chat == "-" && isatty(STDIN_FILENO) == 1 ? "typed" : "").front().empty();
  std::string chat;
  agree(world, [&] {
    if (options.chat && !typed && (prints || *options.chat != "-")) chat = read_all(*options.chat);
  });
  if (options.chat == "-") chat = world.exchange(chat).front();
  agree(world, [&] {
    if (options.json && typed) fail(Exit::usage, "--json is for one answer: give the messages with --chat FILE");
    if (options.json && prints) {
      runtime::Recipe reads;
      reads.model.path = folder.path();
      require_apart({{"--json", *options.json}}, inputs_of(reads, std::nullopt));
      require_own({"--json", *options.json}, Content::generation, options.force);
      json.emplace(*options.json, "--json");
    }
    input = read_generation_input(options, folder, chat, typed, prints);
  });
  const auto& [prompt, ends, tokenizer, dialogue, is_typed] = input;
  require_same("prompt or other options", fmt::format("{} {} {} {} {}", fmt::join(prompt, " "), options.max_new_tokens,
                                                      options.temperature, options.top_p, options.seed));
  const comm::FileFingerprint seen_ends{"end-of-text token (generation_config.json, config.json, the tokenizer)",
                                        fmt::format("{}", fmt::join(ends, " "))};
  comm::require_same({&seen_ends, 1}, world);
  ReplyGenerator generator(options, folder, world, share.cores);
  if (is_typed) return run_dialogue(input, generator, world, stop);

  std::optional<text::StreamDecoder> decoder;
  if (tokenizer) decoder.emplace(*tokenizer);
  std::string all;
  const auto write = [&](const std::string& text) {
    all += text;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const Generated result = generator.answer(prompt, ends, tokenizer.get(), stop, [&](std::uint32_t token) {
    if (prints) write(decoder ? decoder->add(token) : fmt::format("{}{}", all.empty() ? "" : " ", token));
  });
  const std::string ranks_threads = threads_text(share, generator.threads(), world);
  if (!prints) return;
  const runtime::Job& job = generator.job();
  if (decoder) write(decoder->finish());
  if (isatty(STDOUT_FILENO) == 1) fmt::print("\n");
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail(Exit::failed, "standard output cannot be written");
  say("{} read in {:.2f} s, {} written at {:.1f} tokens/s ({}, {}, {}{})", counted(prompt.size(), "token"),
      result.prompt_s, result.tokens.size(), result.tokens_per_s(), device::name_of(job.recipe.training.precision),
      world.describe(), ranks_threads, job.plan.sharded_parameters() ? ", weights sharded" : "");
  if (!json) return;
  std::string text;  // the output of a model need not be UTF-8, but JSON must be
  text::append_repaired(all, text);
  const std::string memory = runtime::memory_json(job.plan.memory, &generator.executor().measured_memory());
  json->write(JsonObject()
                  .add("prompt_tokens", JsonArray().add_all(prompt))
                  .add("tokens", JsonArray().add_all(result.tokens))
                  .add("text", text)
                  .add("prompt_s", result.prompt_s)
                  .add("tokens_per_s", result.tokens_per_s())
                  .add("ranks", job.ranks)
                  .add("memory", JsonText{memory})
                  .add("exit", 0)
                  .text() +
              "\n");
  json->close();
}

}  // namespace

int generate(const GenerateOptions& options) {
  const StopSignal stop;
  return run_as_rank(std::nullopt, options.sets, [&](comm::World& world) { run(options, world, stop); });
}

}  // namespace strata::launcher
