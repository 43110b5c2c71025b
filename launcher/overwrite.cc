#include <simdjson.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "launcher/outputs.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/files/tokens.h"
#include "runtime/run/reports/run_reports.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

// How files with this content begin, and a text that follows soon after.
struct Mark {
  Content content;
  std::string_view name, begins, has;
};

// Files have no common first key: those of earlier versions stay overwritable without --force, tables, pictures and
// pages have no keys, and every line of a report of steps begins with its step.
constexpr std::array kMarks = std::to_array<Mark>({
    {Content::plan, "the JSON of a plan", "{\"fits\":", "\"parameters\":"},
    {Content::trace, "the trace of a step", "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"trace\":", ""},
    {Content::evaluation, "the JSON of an evaluation", "{\"loss\":", "\"loss_hex\":"},
    {Content::evaluation, "", "{\"exit\":", ""},  // an evaluation that did not fit
    {Content::generation, "the JSON of a generation", "{\"prompt_tokens\":[", ""},
    {Content::bench, "the JSON of a benchmark", "{\"bench\":\"", ""},
    {Content::chart, "a picture of strata bench", "<svg ", "data-by=\"strata bench memory\""},
    {Content::steps, "a report of steps", "{\"step\":", "loss_hex\":"},  // or eval_loss_hex
    {Content::table, "a table of steps", "step,time,epoch,loss,", ""},
    {Content::events, "a run's events", "{\"step\":", "\"event\":"},
    {Content::recipe, "the recipe of a run", "# A run of strata", ""},
    {Content::drawing, "the plan of a run", "{\"strata_plan\":", ""},
    {Content::page, "a page of strata", "<!doctype html>", "content=\"strata\""},
    {Content::summary, "the summary of a run", "{\"steps\":", "\"model_flops_per_token\":"},
    {Content::machine, "a machine file", "", "\n[blocks]\n"},
    {Content::tokens, "a token file with its sidecar next to it", "", ""},
    {Content::sidecar, "the sidecar of a token file", "{\"vocab_size\":", "\"width\":"},
    {Content::documents, "where the documents of a token file begin, as its sidecar counts them", "", ""},
    {Content::mask, "the mask of a token file, as its sidecar names it", "", ""},
    {Content::types, "the token types of a token file, as its sidecar names them", "", ""},
    {Content::labels, "the labels of a token file, as its sidecar names them", "", ""},
    {Content::prediction, "a file of predictions with probabilities", "", ""},
});

// The file's first bytes; nullopt if it cannot be read.
std::optional<std::string> head_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string head(4096, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return head;
}

// Token files and the files next to them have no mark. A sidecar that counts their content identifies them.
bool is_counted(const fs::path& path, Content content) {
  try {
    fs::path tokens = path;
    if (content != Content::tokens) tokens.replace_extension();
    if (content == Content::labels) tokens.replace_extension();  // .labels.jsonl
    const auto sidecar = runtime::read_sidecar(tokens);
    if (!sidecar) return false;
    if (content == Content::labels) return sidecar->labels.has_value();
    if (content == Content::types) return sidecar->types && (sidecar->count + 7) / 8 == fs::file_size(path);
    if (content == Content::documents)
      return sidecar->documents && sidecar->documents->count * sizeof(std::uint64_t) == fs::file_size(path);
    if (content == Content::mask) return sidecar->mask && (sidecar->count + 7) / 8 == fs::file_size(path);
    return sidecar->count * static_cast<std::uint64_t>(sidecar->width) == fs::file_size(path);
  } catch (const Error&) {
    return false;
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

// Whether a line contains the classes of a text and their probabilities, and nothing else.
bool is_line_of_classes(const simdjson::dom::element& root) {
  simdjson::dom::object object, probabilities;
  simdjson::dom::element label;
  simdjson::dom::array list;
  if (root.get_object().get(object) != simdjson::SUCCESS || object.size() != 2) return false;
  const bool one = object["label"].get(label) == simdjson::SUCCESS;
  const bool many = object["labels"].get_array().get(list) == simdjson::SUCCESS;
  return one != many && object["probabilities"].get_object().get(probabilities) == simdjson::SUCCESS;
}

// Predictions have no mark either, and are identified by the probabilities in their first lines. Predictions without
// probabilities (words, regressions) look like labels that people write, so such a file never counts as the program's
// own.
bool is_prediction(const fs::path& path) {
  constexpr int kLines = 16;
  constexpr std::size_t kLongest = std::size_t{1} << 24;
  std::ifstream file(path, std::ios::binary);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  std::string line;
  int lines = 0;
  for (; lines < kLines && std::getline(file, line); ++lines)
    if (line.size() > kLongest || parser.parse(line).get(root) != simdjson::SUCCESS || !is_line_of_classes(root))
      return false;
  return lines > 0;
}

bool is_own(const fs::path& path, Content content) {
  if (content == Content::prediction) return is_prediction(path);
  if (content == Content::tokens || content == Content::documents || content == Content::mask ||
      content == Content::types || content == Content::labels)
    return is_counted(path, content);
  const auto head = head_of(path);
  return head && std::ranges::any_of(kMarks, [&](const Mark& mark) {
           return mark.content == content && head->starts_with(mark.begins) &&
                  head->find(mark.has) != std::string::npos;
         });
}

std::string_view name_of(Content content) {
  return std::ranges::find(kMarks, content, &Mark::content)->name;  // the first mark has the name
}

void require_content(const NamedFile& output, Content content, bool force) {
  std::error_code error;
  if (force || !fs::is_regular_file(output.path, error) || fs::file_size(output.path, error) == 0) return;
  if (is_own(output.path, content)) return;
  fail(Exit::usage, "{} {} exists and is not {}: give another name, or --force to overwrite it", output.name,
       output.path.string(), name_of(content));
}

}  // namespace

void require_place(const NamedFile& output, bool makes_folder) {
  std::error_code error;
  const fs::path folder = output.path.has_parent_path() ? output.path.parent_path() : ".";
  if (!makes_folder && !fs::exists(folder, error) && !error)
    fail(Exit::usage, "{} {}: there is no folder {}: create it first, or give another name", output.name,
         output.path.string(), folder.string());
  if (fs::is_directory(output.path, error))
    fail(Exit::usage, "{} {} is a folder: give the name of a file", output.name, output.path.string());
  // Removing a checkpoint removes everything in its folder.
  for (fs::path at = fs::weakly_canonical(folder, error); at.has_relative_path(); at = at.parent_path())
    if (runtime::is_name_of_run(at.filename().string()) && fs::exists(at / runtime::kManifestName, error))
      fail(
          Exit::usage,
          "{} {} lies in the checkpoint {}, which a run later removes with all its contents: give a name outside of it",
          output.name, output.path.string(), at.string());
}

void require_own(const NamedFile& output, Content content, bool force) {
  require_place(output);
  require_content(output, content, force);
}

void require_own_reports(const runtime::Recipe& recipe, bool force) {
  for (const auto& [key, path] : {std::pair{"report.dir", &recipe.report.dir},
                                  {"report.tensorboard", &recipe.report.tensorboard},
                                  {"checkpoint.dir", &recipe.checkpoint.dir}}) {
    std::error_code error;
    if (*path && fs::exists(**path, error) && !fs::is_directory(**path, error))
      fail(Exit::usage, "{} = {} is not a folder: name another, or remove it", key, (*path)->string());
  }
  const auto require = [&](const char* key, const std::optional<fs::path>& path, Content content) {
    if (!path) return;
    std::error_code error;
    if (fs::is_directory(*path, error))
      fail(Exit::usage, "{} = {} is a folder: give the name of a file", key, path->string());
    require_content({key, *path}, content, force);
  };
  require("report.jsonl", recipe.report.jsonl, Content::steps);
  require("report.csv", recipe.report.csv, Content::table);
  if (recipe.report.dir) {
    require("report.dir", *recipe.report.dir / runtime::kRecipeReport, Content::recipe);
    require("report.dir", *recipe.report.dir / runtime::kEventsReport, Content::events);
    require("report.dir", *recipe.report.dir / runtime::kPlanReport, Content::drawing);
  }
  require("report.summary", recipe.report.summary, Content::summary);
  require("report.trace", recipe.report.trace, Content::trace);
}

}  // namespace strata::launcher
