#include "launcher/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/words.h"
#include "launcher/control/service/service_address.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/files/tokens.h"
#include "runtime/run/reports/run_reports.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

// The absolute path of a file that exists or would be created, without links, dots and superfluous slashes.
fs::path place_of(fs::path path) {
  constexpr int kMaxLinks = 40;  // the system's limit
  std::error_code error;
  path = fs::absolute(path, error);
  // A link to a file that does not exist yet still leads to that file.
  for (int i = 0; i < kMaxLinks && !fs::exists(path, error) && fs::is_symlink(fs::symlink_status(path, error)); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  path = fs::weakly_canonical(path, error);
  return path.has_filename() ? path : path.parent_path();
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  const fs::path left = place_of(a);
  return !left.empty() && left == place_of(b);
}

bool belongs_to_a_model(const fs::path& path) {
  constexpr std::string_view kNames =
      "config.json generation_config.json tokenizer.json tokenizer_config.json added_tokens.json "
      "special_tokens_map.json vocab.json merges.txt";
  const std::string name = path.filename().string();
  return path.extension() == ".safetensors" || path.extension() == ".model" || name == runtime::kManifestName ||
         name.ends_with(".safetensors.index.json") || has_word(kNames, name);
}

// Adds the files of a model in a folder, at its top or in its checkpoints.
void add_model_files(const std::string& name, const fs::path& folder, std::vector<NamedFile>& out) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    if (at.depth() > 0) at.disable_recursion_pending();
    if (belongs_to_a_model(at->path())) out.push_back({name, at->path()});
  }
}

}  // namespace

void require_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::error_code ignored;
    // Several outputs may go to the same terminal, pipe or /dev/null.
    if (fs::exists(outputs[i].path, ignored) && !fs::is_regular_file(outputs[i].path, ignored)) continue;
    for (const NamedFile& input : inputs)
      if (same_file(outputs[i].path, input.path))
        fail(Exit::usage, "{} {} is also an input ({}): give the output another name", outputs[i].name,
             outputs[i].path.string(), input.name);
    for (std::size_t j = 0; j < i; ++j)
      if (same_file(outputs[i].path, outputs[j].path))
        fail(Exit::usage, "{} and {} are the same file, {}: give one of them another name", outputs[j].name,
             outputs[i].name, outputs[i].path.string());
  }
}

namespace {

// The name of the entry of `folder` that is `path` or contains it; empty if `path` is elsewhere.
std::string entry_of(const fs::path& folder, fs::path path) {
  for (; path.has_parent_path() && path != path.parent_path(); path = path.parent_path())
    if (!path.filename().empty() && same_file(path.parent_path(), folder)) return path.filename().string();
  return {};
}

}  // namespace

void require_outside_checkpoints(const std::vector<NamedFile>& outputs, const runtime::Recipe& recipe) {
  if (!recipe.checkpoint.dir) return;
  const fs::path& folder = *recipe.checkpoint.dir;
  for (const NamedFile& output : outputs) {
    std::error_code ignored;
    // A link in checkpoint.dir would be removed like a checkpoint. A link from elsewhere may lead into checkpoint.dir.
    for (const fs::path& path : {fs::absolute(output.path, ignored).lexically_normal(), place_of(output.path)})
      if (const std::string entry = entry_of(folder, path);
          runtime::is_name_of_run(entry) || entry == control::kAddressFile)
        fail(Exit::usage,
             "{} {}: the run itself writes or removes {} in checkpoint.dir {}: give another name, or another folder",
             output.name, output.path.string(), entry, folder.string());
  }
}

std::vector<NamedFile> inputs_of(const runtime::Recipe& recipe, const std::optional<fs::path>& file) {
  std::vector<NamedFile> out;
  if (file) out.push_back({"the recipe", *file});
  const auto add_data = [&](const char* key, const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      try {
        for (const fs::path& path : runtime::expand_patterns({&pattern, 1}, key)) {
          out.push_back({key, path});
          for (const auto& companion : {runtime::sidecar_path, runtime::documents_path, runtime::mask_path,
                                        runtime::types_path, runtime::labels_path})
            out.push_back({key, companion(path)});
        }
      } catch (const Error&) {
        // The code that opens the file reports this error.
      }
    }
  };
  for (const runtime::DataSource& source : recipe.data.train) add_data("data.train", source.files);
  add_data("data.validation", recipe.data.validation);
  if (recipe.model.path) add_model_files("model.path", *recipe.model.path, out);
  const auto add = [&](const char* key, const std::optional<fs::path>& path) {
    if (path) out.push_back({key, *path});
  };
  add("report.machine", recipe.report.machine);
  add("evaluation.prompts", recipe.evaluation.prompts);
  add("control.tls_cert", recipe.control.tls_cert);
  add("control.tls_key", recipe.control.tls_key);
  add("control.tls_client_ca", recipe.control.tls_client_ca);
  add("control.token_file", recipe.control.token_file);
  if (recipe.checkpoint.dir) add_model_files("checkpoint.dir", *recipe.checkpoint.dir, out);
  return out;
}

std::vector<NamedFile> reports_of(const runtime::Recipe& recipe) {
  std::vector<NamedFile> out;
  const auto add = [&](const char* key, const std::optional<fs::path>& path) {
    if (path) out.push_back({key, *path});
  };
  add("report.jsonl", recipe.report.jsonl);
  add("report.csv", recipe.report.csv);
  add("report.summary", recipe.report.summary);
  add("report.trace", recipe.report.trace);
  if (recipe.report.dir)
    for (const std::string_view name : {runtime::kRecipeReport, runtime::kEventsReport, runtime::kPlanReport})
      out.push_back({"report.dir", *recipe.report.dir / name});
  return out;
}

std::vector<NamedFile> report_folders(const runtime::Recipe& recipe) {
  std::vector<NamedFile> out;
  if (recipe.report.dir) out.push_back({"report.dir", *recipe.report.dir});
  if (recipe.report.tensorboard) out.push_back({"report.tensorboard", *recipe.report.tensorboard});
  constexpr std::string_view kUnix = "unix:";
  if (const std::string& listen = recipe.control.listen; listen.starts_with(kUnix))
    out.push_back({"control.listen", listen.substr(kUnix.size())});
  return out;
}

std::vector<std::string> missing_inputs(const runtime::Recipe& recipe) {
  std::vector<std::string> out;
  const auto look = [&](const char* key, const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
      try {
        (void)runtime::expand_patterns({&pattern, 1}, key);
      } catch (const Error& error) {
        out.emplace_back(error.what());
      }
    }
  };
  for (const runtime::DataSource& source : recipe.data.train) look("data.train", source.files);
  look("data.validation", recipe.data.validation);
  std::error_code ignored;
  if (const auto& prompts = recipe.evaluation.prompts; prompts && !fs::exists(*prompts, ignored))
    out.push_back(fmt::format("evaluation.prompts: {} does not exist", prompts->string()));
  if (const std::string& resume = recipe.checkpoint.resume;
      resume != "auto" && resume != "none" && !fs::exists(resume, ignored))
    out.push_back(fmt::format("checkpoint.resume: {} does not exist", resume));
  return out;
}

}  // namespace strata::launcher
