#include "base/error.h"
#include "launcher/commands/commands.h"
#include "launcher/rank/cores.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/progress.h"
#include "runtime/checkpoint/export/exporter.h"

namespace strata::launcher {

int export_model(const ExportOptions& options) {
  const auto folder = [&] {
    Activity verifying("verifying the checkpoint", Activity::Unit::bytes);
    return runtime::ModelFolder::whole(options.from, bind_cores(0, 1).cores, note, verifying.advance());
  }();
  if (options.merge && !folder.has_adapter())
    fail(Exit::usage, "{} has no adapter that could be merged: leave --merge out", folder.path().string());
  if (options.adapter) {
    print_remarks([&] {
      Activity exporting("exporting", Activity::Unit::bytes);
      return runtime::export_adapter(folder, options.to, exporting.advance());
    }());
    say("the adapter of {} exported to {}, as peft reads it", folder.path().string(), options.to.string());
    return static_cast<int>(Exit::done);
  }
  const auto remarks = [&] {
    Activity exporting("exporting", Activity::Unit::bytes);
    return runtime::export_model(folder, options.to,
                                 {.dtype = options.dtype == "bf16" ? device::DType::bf16 : device::DType::fp32,
                                  .quantised = options.quantised,
                                  .advance = exporting.advance()});
  }();
  print_remarks(remarks);
  if (options.quantised && folder.has_adapter())
    say("{} is the model without its adapter, which strata export {} -o FOLDER --adapter writes", options.to.string(),
        folder.path().string());
  say("{} exported to {} in {}{}{}", folder.path().string(), options.to.string(), options.dtype,
      options.quantised ? ", and what is quantised in NF4" : "",
      folder.hugging_face()
          ? ""
          : "; the model comes with no tokenizer: give generate the one of its tokens, --tokenizer byte or a folder");
  return static_cast<int>(Exit::done);
}

}  // namespace strata::launcher
