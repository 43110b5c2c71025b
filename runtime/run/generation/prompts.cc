#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files/input_file.h"
#include "comm/agreement.h"
#include "comm/same_files.h"
#include "models/files/config.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/tokens.h"
#include "runtime/run/generation/generator.h"
#include "text/chat/dialogue.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

// The existing files of data.train and data.validation, with their sidecars.
std::vector<std::pair<fs::path, TokenSidecar>> sidecars_of(const Recipe& recipe) {
  std::vector<fs::path> files = expand_patterns(recipe.data.validation, "data.validation");
  for (const DataSource& source : recipe.data.train)
    for (fs::path& file : expand_patterns(source.files, "data.train")) files.push_back(std::move(file));
  std::vector<std::pair<fs::path, TokenSidecar>> out;
  for (fs::path& file : files)
    if (auto sidecar = read_sidecar(file)) out.emplace_back(std::move(file), std::move(*sidecar));
  return out;
}

class Reader {
 public:
  explicit Reader(const Job& job) : job_(job), path_(*job.recipe.evaluation.prompts) {}

  Prompts read() {
    constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
    std::istringstream file(read_input(path_, "evaluation.prompts: " + path_.string(), kMaxBytes));
    const auto sidecars = sidecars_of(job_.recipe);
    const fs::path where = tokenizer_of(sidecars);
    Prompts out{.tokenizer = text::load_tokenizer(where), .all = {}, .notes = {}};
    for (const std::string& note : out.tokenizer->notes())
      out.notes.push_back(fmt::format("{}: {}", where.string(), note));
    if (out.tokenizer->vocab_size() > job_.model->vocabulary)
      fail(Exit::usage, "evaluation.prompts: the tokenizer {} has {} tokens, but the model has {}",
           out.tokenizer->name(), out.tokenizer->vocab_size(), job_.model->vocabulary);
    if (folder_) ends_ = is_described_ ? models::end_tokens(*folder_, job_.description) : models::end_tokens(*folder_);
    if (const auto end = out.tokenizer->end_of_text()) ends_.push_back(*end);
    const bool records = path_.extension() == ".jsonl";
    const auto made = template_of(where, *out.tokenizer, sidecars, records);
    if (made)
      for (std::string& note : made->notes()) out.notes.push_back(std::move(note));
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) continue;
      Prompts::Prompt prompt{line, {}, ends_};
      if (made) {
        text::Dialogue dialogue(*made, *out.tokenizer);
        if (records)
          dialogue.read(line, fmt::format("{}, line {}", path_.string(), number));
        else
          dialogue.ask(line);
        prompt.tokens = dialogue.prompt();
        for (const std::uint32_t end : dialogue.turn_ends()) prompt.ends.push_back(end);
      } else {
        prompt.tokens = out.tokenizer->encode(line, true);
      }
      const auto limit = static_cast<std::size_t>(job_.recipe.data.seq_len);
      if (prompt.tokens.empty() || prompt.tokens.size() >= limit)
        fail(Exit::usage, "{}: line {} has {} tokens, but data.seq_len = {} leaves no room for an answer",
             path_.string(), number, prompt.tokens.size(), limit);
      out.all.push_back(std::move(prompt));
    }
    if (out.all.empty())
      fail(Exit::usage, "evaluation.prompts: {} holds no prompt: write one per line", path_.string());
    return out;
  }

 private:
  using Sidecars = std::vector<std::pair<fs::path, TokenSidecar>>;

  // The tokenizer in the model's folder; for a preset, the tokenizer that made its training tokens, if it is built in.
  fs::path tokenizer_of(const Sidecars& sidecars) {
    if (job_.model_path()) {
      const ModelFolder model(*job_.model_path());
      folder_ = model.hugging_face();
      is_described_ = !model.is_checkpoint();
    }
    if (folder_) return *folder_;
    for (const auto& [file, sidecar] : sidecars)
      if (sidecar.tokenizer == "byte") return "byte";
    fail(Exit::usage,
         "evaluation.prompts needs a tokenizer, but the model has none: set model.path to a Hugging Face "
         "directory that has one");
  }

  // The template that writes the prompts; nullopt if they are taken as they are.
  std::optional<text::ChatTemplate> template_of(const fs::path& where, const text::Tokenizer& tokenizer,
                                                const Sidecars& sidecars, bool records) const {
    const std::pair<fs::path, TokenSidecar>* chats = nullptr;
    for (const auto& one : sidecars)
      if (!one.second.chat_template_hash.empty()) chats = &one;
    if (!records && !chats) return std::nullopt;
    auto made = text::ChatTemplate::find(where, std::nullopt, tokenizer);
    const std::string have = made ? made->hash() : "";
    if (!made && !chats)
      fail(Exit::usage,
           "evaluation.prompts: {} holds conversations, but {} has no chat template: put one there as "
           "chat_template.jinja, or give a text file with one prompt per line",
           path_.string(), where.string());
    if (chats && have != chats->second.chat_template_hash)
      fail(Exit::usage,
           "evaluation.prompts: {} was written by {}, but {} has {}: put that template there as chat_template.jinja",
           chats->first.string(), chats->second.chat_template, where.string(),
           made ? "another chat template" : "no chat template");
    return made;
  }

  const Job& job_;
  const fs::path& path_;
  std::optional<fs::path> folder_;
  bool is_described_ = false;  // the job's description is that of folder_, not of a checkpoint that began with it
  std::vector<std::uint32_t> ends_;
};

}  // namespace

Prompts read_prompts(const Job& job, comm::World& world) {
  Prompts out;
  comm::agree(world, [&] { out = Reader(job).read(); });
  const comm::FileFingerprint prompts = comm::fingerprint_file(*job.recipe.evaluation.prompts, "evaluation.prompts");
  comm::require_same({&prompts, 1}, world);
  return out;
}

}  // namespace strata::runtime
