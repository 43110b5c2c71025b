// report.dir/recipe.toml of every family and objective, with classes of any names: `train` reads it, and plans the
// same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/value.h"
#include "runtime/run/reports/run_reports.h"
#include "tests/canonical_json.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kNames = {"no", "a \"b\"", "\\", "é\n", "= [x] # y.z", ""};

class WrittenRecipes : public testing::Test {
 protected:
  // Four documents, whose labels, or whose tokens' labels, are the classes above.
  std::string data(const std::string& name, const std::string& problem) const {
    const fs::path path = tokens_.write(name, {3, 5, 2, 4}, "10111110111111");
    std::string lines;
    for (std::size_t document = 0, lengths[] = {3, 5, 2, 4}; document < 4; ++document) {
      const auto label = [&](std::size_t i) { return json_string(kNames[i % kNames.size()]); };
      if (problem == "regression") {
        lines += fmt::format("{{\"label\": {}.5}}\n", document);
      } else if (problem == "single_label_classification") {
        lines += fmt::format("{{\"label\": {}}}\n", label(document));
      } else {
        std::string list;
        for (std::size_t i = 0; i < (problem == "token_classification" ? lengths[document] : 2); ++i)
          list += (list.empty() ? "" : ", ") + label(document + i);
        lines += fmt::format("{{\"labels\": [{}]}}\n", list);
      }
    }
    TokenSidecar sidecar = *read_sidecar(path);
    sidecar.labels = TokenSidecar::Labels{4, tokens_.put(name + ".labels.jsonl", lines), problem,
                                          problem == "regression" ? std::vector<std::string>{} : kNames};
    tokens_.folder().write(name + ".json", to_json(sidecar));
    return path.string();
  }

  tests::TokenFolder tokens_{60};
};

TEST_F(WrittenRecipes, SurviveARoundTripForAllFamiliesAndObjectives) {
  const std::string bert = R"("hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
                               "num_hidden_layers": 1, "max_position_embeddings": 40, "vocab_size": 60)";
  const std::map<std::string, std::string> families = {
      {"bert", bert},
      {"roberta", bert},
      {"xlm-roberta", bert},
      {"camembert", bert},
      {"modernbert", bert + ", \"pad_token_id\": 0"},
      {"distilbert", R"("dim": 32, "hidden_dim": 48, "n_heads": 2, "n_layers": 1, "max_position_embeddings": 40,
                        "vocab_size": 60)"},
      {"gpt2", R"("n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 40, "vocab_size": 60)"},
      {"llama", bert + ", \"rms_norm_eps\": 1e-5"},
      {"mistral", bert + ", \"rms_norm_eps\": 1e-5, \"num_key_value_heads\": 1"},
      {"qwen2", bert + ", \"rms_norm_eps\": 1e-6, \"num_key_value_heads\": 1"},
      {"qwen3", bert + ", \"rms_norm_eps\": 1e-6, \"head_dim\": 16, \"num_key_value_heads\": 1"}};
  const std::vector<std::pair<const char*, const char*>> learned = {
      {"causal_lm", ""},
      {"masked_lm", ""},
      {"sequence_classification", "single_label_classification"},
      {"sequence_classification", "multi_label_classification"},
      {"sequence_classification", "regression"},
      {"token_classification", "token_classification"}};
  const tests::ScratchFolder folder;
  tokens_.mask_token = 4;
  tokens_.special_tokens = std::vector<std::uint32_t>{0, 1, 2, 3, 4};
  std::map<std::string, int> written;
  for (const auto& [family, sizes] : families) {
    folder.write(family + "/config.json", fmt::format("{{\"model_type\": \"{}\", {}}}", family, sizes));
    for (const auto& [objective, problem] : learned) {
      SCOPED_TRACE(fmt::format("{}, {} {}", family, objective, problem));
      const std::string file = data(*problem ? std::string(problem) + ".bin" : "plain.bin",
                                    *problem ? problem : "single_label_classification");
      const fs::path report = folder.path() / family / (std::string(objective) + problem);
      const auto job_of = [](const Recipe& recipe) {
        Workload workload = open_workload(recipe);
        (void)resolve_workload(workload, false);
        return make_job(workload, 1, capacity_of(recipe.memory, 1));
      };
      Job job;
      try {
        job =
            job_of(load_recipe(std::nullopt, std::vector<std::string>{
                                                 "model.path=" + (folder.path() / family).string(), "model.init=random",
                                                 std::string("training.objective=") + objective, "data.train=" + file,
                                                 "data.seq_len=16", "training.max_steps=3", "memory.device=1GiB",
                                                 "memory.host=1GiB", "report.dir=" + report.string()}));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Exit::usage) << error.what();
        continue;  // a head that the family does not have
      }
      ++written[*problem ? problem : objective];
      const Recipe complete = job.complete_recipe();
      { RunReports reports(complete, {}); }
      const Recipe read = load_recipe(report / kRecipeReport, {});
      const Job again = job_of(read);
      EXPECT_EQ(tests::canonical(again.config().to_json()), tests::canonical(job.config().to_json()));
      EXPECT_EQ(hash_of(again.plan), hash_of(job.plan));
      const Recipe complete_again = again.complete_recipe();
      for (const RecipeKey& key : recipe_keys())
        if (!key.name.starts_with("report.")) {
          EXPECT_EQ(key.text(complete_again), key.text(complete)) << key.name;
        }
    }
  }
  EXPECT_EQ(written["causal_lm"], 5);
  EXPECT_EQ(written["masked_lm"], 6);
  for (const char* problem :
       {"single_label_classification", "multi_label_classification", "regression", "token_classification"})
    EXPECT_GE(written[problem], 6) << problem;
}

}  // namespace
}  // namespace strata::runtime
