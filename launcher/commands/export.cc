#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "launcher/commands/commands.h"
#include "launcher/rank/cores.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "runtime/checkpoint/export/adapter_folder.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/job/requirements.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {
namespace {

std::string dtype_of(const ExportOptions& options) {
  return options.dtype.value_or("fp32");
}

runtime::ExportOptions settings_of(const ExportOptions& options, Activity& exporting) {
  return {.dtype = dtype_of(options) == "bf16" ? device::DType::bf16 : device::DType::fp32,
          .quantised = options.quantised,
          .unpacked_as_read = !options.dtype,
          .advance = exporting.advance()};
}

std::string text_about_tokenizer(const runtime::ModelFolder& folder) {
  if (folder.hugging_face()) return "";
  const auto base = folder.base();
  if (base && runtime::type_at(*base) == std::filesystem::file_type::not_found)
    return fmt::format(
        "; the tokenizer was not copied, because the run's initial model is no longer at {}: copy tokenizer.json and "
        "generation_config.json into the export",
        base->string());
  return "; the model has no tokenizer: give generate the one that made its tokens (--tokenizer byte, or a folder)";
}

// Exports a peft folder's adapter, merged into its base model.
void export_adapted(const ExportOptions& options, const std::filesystem::path& base) {
  if (options.adapter || options.quantised)
    fail(Exit::usage,
         "{} is an adapter of {}, but --{} would write {} unchanged: leave the option out to merge the two",
         options.from.string(), base.string(), options.adapter ? "adapter" : "quantized",
         options.adapter ? "it" : "that model");
  std::vector<std::string> sets = {"model.path=" + json_string(base.string()),
                                   "adapter.path=" + json_string(options.from.string()), "data.seq_len=1"};
  const std::vector<std::string> head = runtime::keys_of_head(runtime::ModelFolder(base).config(), options.from);
  sets.insert(sets.end(), head.begin(), head.end());
  const runtime::Workload workload = runtime::open_workload(runtime::load_recipe(std::nullopt, sets));
  note(runtime::note_of_base(options.from, base));
  const auto model = runtime::adapted_model(workload);
  runtime::require_adaptable(*model, *workload.adapter().shared(), options.from, base);
  print_notes([&] {
    Activity exporting("exporting", Activity::Unit::bytes);
    return runtime::export_merged(workload, *model, options.to, settings_of(options, exporting));
  }());
  say("{}, merged into {}, exported to {} in {}{}", options.from.string(), base.string(), options.to.string(),
      dtype_of(options), text_about_tokenizer(runtime::ModelFolder(base)));
}

}  // namespace

int export_model(const ExportOptions& options) {
  if (const auto base = runtime::base_folder_of(options.from)) {
    export_adapted(options, *base);
    return static_cast<int>(Exit::done);
  }
  const auto folder = [&] {
    Activity verifying("verifying the checkpoint", Activity::Unit::bytes);
    return runtime::ModelFolder::newest_undamaged(options.from, bind_cores(0, 1).cores, note, verifying.advance());
  }();
  if (const std::string text = folder.base_note(); !text.empty()) note(text);
  if (options.merge && !folder.has_adapter())
    fail(Exit::usage, "{} has no adapter to merge: leave --merge out", folder.path().string());
  if (options.adapter) {
    print_notes([&] {
      Activity exporting("exporting", Activity::Unit::bytes);
      return runtime::export_adapter(folder, options.to, exporting.advance());
    }());
    say("the adapter of {} exported to {}, as peft reads it", folder.path().string(), options.to.string());
    return static_cast<int>(Exit::done);
  }
  const auto notes = [&] {
    Activity exporting("exporting", Activity::Unit::bytes);
    return runtime::export_model(folder, options.to, settings_of(options, exporting));
  }();
  print_notes(notes);
  if (options.quantised && folder.has_adapter())
    say("{} is the model without its adapter, which strata export {} -o FOLDER --adapter writes", options.to.string(),
        folder.path().string());
  say("{} exported to {} in {}{}{}", folder.path().string(), options.to.string(), dtype_of(options),
      options.quantised ? ", with its quantised tensors in NF4" : "", text_about_tokenizer(folder));
  return static_cast<int>(Exit::done);
}

}  // namespace strata::launcher
