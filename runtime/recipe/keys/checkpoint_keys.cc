#include "base/json/json_writer.h"
#include "runtime/recipe/evaluation_metric.h"
#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/keys/key_kinds.h"
#include "runtime/recipe/user_path.h"
#include "runtime/recipe/value.h"

namespace strata::runtime {
namespace {

using namespace kinds;

RecipeKey resume() {
  auto set = [](Recipe& recipe, const Value& v, const fs::path& folder) {
    const auto* text = std::get_if<std::string>(&v.value);
    if (!text || text->empty()) return false;
    refuse_zero_bytes("checkpoint.resume", *text);
    const bool word = *text == "auto" || *text == "none";
    recipe.checkpoint.resume = word ? *text : user_path(*text, folder).string();
    return true;
  };
  return plain("checkpoint.resume", "\"auto\", \"none\" or a path",
               "auto: the newest complete checkpoint in checkpoint.dir, if any; none; or the path of a checkpoint, or "
               "of a folder whose newest complete one is used",
               STRATA_AT(checkpoint.resume), set);
}

Choices<std::string> metrics() {
  Choices<std::string> out;
  for (const std::string_view name : metric_names()) out.emplace_back(name, name);
  return out;
}

}  // namespace

std::vector<RecipeKey> checkpoint_keys() {
  return {
      path("checkpoint.dir", STRATA_AT(checkpoint.dir), "folder for checkpoints"),
      integer("checkpoint.every", 0, kMany, STRATA_AT(checkpoint.every),
              "steps between checkpoints; with checkpoint.dir, one is always written after the last step and when a "
              "run is stopped"),
      integer("checkpoint.keep", 1, kMany, STRATA_AT(checkpoint.keep), "number of newest checkpoints to keep"),
      resume(),
      integer("checkpoint.stop_after", 0, kMany, STRATA_AT(checkpoint.stop_after),
              "write a checkpoint after this step and exit 75; 0: never"),
      flag("checkpoint.keep_best", STRATA_AT(checkpoint.keep_best),
           "write a checkpoint at each new best evaluation, by evaluation.metric, and keep the best one in addition to "
           "the newest"),
  };
}

std::vector<RecipeKey> evaluation_keys() {
  return {
      integer("evaluation.every", 0, kMany, STRATA_AT(evaluation.every),
              "steps between evaluations on data.validation while training; 0: none"),
      flag("evaluation.at_start", STRATA_AT(evaluation.at_start), "evaluate before the first step, too"),
      integer_or<std::optional<std::int64_t>>(
          "evaluation.max_sequences", {{"all", std::nullopt}}, kMany, STRATA_AT(evaluation.max_sequences),
          "number of sequences of data.validation, from the first, that an evaluation reads"),
      choice<std::string>("evaluation.metric", metrics(), STRATA_AT(evaluation.metric),
                          "the metric that decides which evaluation is best"),
      flag_or_auto("evaluation.greater_is_better", STRATA_AT(evaluation.greater_is_better),
                   "whether a higher value is better; auto: as the metric defines"),
      integer("evaluation.patience", 0, kMany, STRATA_AT(evaluation.patience),
              "end the run after this many evaluations in a row without a better one (an evaluation without a value is "
              "not better); 0: never"),
      path("evaluation.prompts", STRATA_AT(evaluation.prompts),
           "file of prompts, one per line; each evaluation answers them, in report.jsonl"),
  };
}

}  // namespace strata::runtime
