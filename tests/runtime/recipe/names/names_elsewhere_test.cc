#include "runtime/recipe/names/names_elsewhere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/recipe/keys.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(NamesElsewhere, EachMapsToAnExistingKeyAndIsNotAKey) {
  std::set<std::string_view> keys, names;
  for (const RecipeKey& key : recipe_keys()) keys.insert(key.name);
  for (const NameElsewhere& other : names_elsewhere()) {
    EXPECT_TRUE(names.insert(other.name).second) << other.name << " is there twice";
    EXPECT_TRUE(other.key.empty() ? !other.note.empty() : keys.contains(other.key)) << other.name;
    for (const std::string_view key : keys)
      EXPECT_NE(other.name, key.substr(key.rfind('.') + 1)) << "find_elsewhere is called only for unknown keys";
  }
}

TEST(NamesElsewhere, AreFoundInAnySection) {
  for (const char* key : {"lr", "optimizer.lr", "training.args.lr"}) {
    const NameElsewhere* found = find_elsewhere(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_EQ(found->key, "optimizer.learning_rate") << key;
  }
  for (const char* key : {"offload_optimizer.device", "zero_optimization.offload_optimizer.device"})
    EXPECT_EQ(find_elsewhere(key)->key, "zero.optimizer");
  EXPECT_EQ(find_elsewhere("deepspeed.fp16.enabled")->key, "training.precision");
  for (const char* key : {"", ".", "x", "clr", "lrs", "lr_", "lr.x", "lr.", ".x", "a..b"})
    EXPECT_EQ(find_elsewhere(key), nullptr) << key;
}

TEST(NamesElsewhere, TranslateUnknownKeys) {
  EXPECT_FAILURE(recipe_with({"training.per_device_train_batch_size=4"}), Exit::usage,
                 StartsWith("unknown key training.per_device_train_batch_size (--set): use training.micro_batch_size: "
                            "in sequences of data.seq_len tokens"));
  EXPECT_FAILURE(recipe_with({"optimizer.lr=1"}), Exit::usage, HasSubstr("use optimizer.learning_rate ("));
  EXPECT_FAILURE(recipe_with({"train_on_inputs=false"}), Exit::usage,
                 HasSubstr("(--set): use strata tokenize --train-on assistant"));
}

TEST(NamesElsewhere, ModelParallelismLeadsToItsKeys) {
  for (const char* name : {"tensor_model_parallel_size", "tp_size"})
    EXPECT_FAILURE(recipe_with({std::string(name) + "=2"}), Exit::usage, HasSubstr("use parallel.tensor"));
  EXPECT_FAILURE(recipe_with({"sequence_parallel=true"}), Exit::usage,
                 AllOf(HasSubstr("use parallel.sequence"), HasSubstr("with parallel.tensor above 1")));
  for (const char* name : {"pipeline_model_parallel_size", "pp_size"})
    EXPECT_FAILURE(recipe_with({std::string(name) + "=2"}), Exit::usage, HasSubstr("use parallel.stages ("));
}

TEST(NamesElsewhere, NamesOfPeftAndBitsandbytesLeadToTheirKeys) {
  EXPECT_FAILURE(recipe_with({"peft_type=LORA"}), Exit::usage, HasSubstr("(--set): use adapter.kind: lora; none "));
  EXPECT_THAT(keys_about("peft_type"), HasSubstr("use adapter.kind: lora; none "));
  for (const auto& [name, answer] :
       {std::pair{"use_qlora", "use model.frozen_format"},
        {"use_dora", "use adapter.dora"},
        {"use_rslora", "use adapter.rslora"},
        {"llm_int8_threshold", "no counterpart: it is about weights in 8 bits, which are not supported"},
        {"sequence_parallel_enabled", "use parallel.sequence"},
        {"virtual_pp_degree", "use parallel.chunks"},
        {"pipeline_model_parallel_split_rank", "not supported: no family has both an encoder and a decoder"}})
    EXPECT_THAT(keys_about(name), HasSubstr(answer)) << name;
}

TEST(NamesElsewhere, AreListedByAPartOfTheirNames) {
  EXPECT_EQ(keys_about("save_total"), "save_total_limit (other tools)\n    use checkpoint.keep\n");
  EXPECT_THAT(keys_about("micro_batch_size"),
              AllOf(HasSubstr("training.micro_batch_size = 1\n"),
                    HasSubstr("train_micro_batch_size_per_gpu (other tools)"), Not(HasSubstr("per_device_train"))));
}

// The name itself comes first, then names of which it is a word, then names that contain it.
TEST(NamesElsewhere, ShortNamesComeBeforeNamesThatContainThem) {
  for (const char* name : {"tp", "pp"})
    EXPECT_THAT(keys_about(name), StartsWith(std::string(name) + " (other tools)\n")) << name;
  EXPECT_THAT(keys_about("r"), StartsWith("peft_config.r (other tools)\n    use adapter.rank\nr (other tools)\n"));
  const std::string about = keys_about("tp");
  EXPECT_LT(about.find("\ntp_size (other"), about.find("\noutput_dir (other"));
  EXPECT_THAT(keys_about("stage"), StartsWith("zero.stage = "));
}

TEST(NamesElsewhere, CaseAndDashesMakeNoDifference) {
  for (const char* name :
       {"WarmupLR", "warmuplr", "--train-iters", "fsdp.FULL_SHARD", "zero_optimization.Overlap_Comm"})
    EXPECT_NE(find_elsewhere(std::string_view(name).starts_with("--") ? name + 2 : name), nullptr) << name;
  EXPECT_THAT(keys_about("OVERLAP-COMM"), HasSubstr("overlap_comm (other tools)"));
  EXPECT_THAT(keys_about("zero_optimization.sub_group_size"), HasSubstr("2 Mi elements"));
  EXPECT_THAT(keys_about("optimizer.type"), HasSubstr("use optimizer.name"));
  EXPECT_THAT(keys_about("fp16"), AllOf(HasSubstr("fp16.initial_scale = "), HasSubstr("training.precision: \"fp16\"")));
}

TEST(NamesElsewhere, DoNotShadowSectionsOfStrata) {
  EXPECT_FAILURE(recipe_with({"fp16.enabled=true"}), Exit::usage, HasSubstr("use training.precision"));
  EXPECT_FAILURE(recipe_with({"fp16.hysteresis=2"}), Exit::usage, HasSubstr("every overflow halves"));
  EXPECT_FAILURE(recipe_with({"model.paht=2"}), Exit::usage, HasSubstr("did you mean model.path?"));
  EXPECT_FAILURE(recipe_with({"fp16.initial_scal=2"}), Exit::usage, HasSubstr("did you mean fp16.initial_scale?"));
  EXPECT_FAILURE(recipe_with({"fp16=true"}), Exit::usage, HasSubstr("use training.precision"));
}

// An answer for a section would be wrong for its keys, unless it says so.
TEST(NamesElsewhere, ASectionDoesNotAnswerForItsKeys) {
  for (const char* key : {"zero_optimization.leaf_module", "tokens.foo", "pipeline.foo", "lr_scheduler.foo",
                          "debug.foo", "fsdp_config.xla", "bf16.foo"})
    EXPECT_EQ(find_elsewhere(key), nullptr) << key;
  for (const char* key : {"elasticity.min_gpus", "ds.wandb.team", "optimizer.params.foo", "rope_scaling.factor"})
    EXPECT_NE(find_elsewhere(key), nullptr) << key;
  EXPECT_FAILURE(recipe_with({"zero_optimization.leaf_module=1"}), Exit::usage,
                 HasSubstr("(--set): no key has a similar name"));
}

// `strata keys` and the message about an unknown key agree.
TEST(NamesElsewhere, PointToTheSameNameInAnotherSection) {
  for (const auto& [asked, key] : {std::pair{"debug.seed", "training.seed"},
                                   {"lr_scheduler.warmup_steps", "scheduler.warmup_steps"},
                                   {"zero_optimization.stage", "zero.stage"},
                                   {"elasticity.micro_batch_size", "training.micro_batch_size"}}) {
    EXPECT_THAT(keys_about(asked), StartsWith(std::string(key) + " = "));
    EXPECT_FAILURE(recipe_with({std::string(asked) + "=1"}), Exit::usage,
                   HasSubstr("did you mean " + std::string(key) + "?"));
  }
}

std::string answer(std::string_view key) {
  const NameElsewhere* found = find_elsewhere(key);
  return found ? text_of(*found) : "";
}

TEST(NamesElsewhere, ReplicasAreDistinguishedFromTheirRanks) {
  for (const char* name :
       {"data_parallel_replicate_degree", "dp_replicate_size", "parallelism_config_dp_replicate_size"})
    EXPECT_EQ(answer(name),
              "use zero.optimizer_group: the number of data ranks divided by that of copies, with "
              "zero.stage = 3")
        << name;
  EXPECT_THAT(answer("num_distributed_optimizer_instances"),
              AllOf(HasSubstr("divided by that of copies"), HasSubstr("zero.stage = 1")));
  for (const char* name : {"data_parallel_shard_degree", "parallelism_config_dp_shard_size"})
    EXPECT_EQ(answer(name), "use zero.optimizer_group: the same number, with zero.stage = 3") << name;
  EXPECT_THAT(answer("fsdp_sharding_strategy"), HasSubstr("HYBRID_SHARD"));
  EXPECT_THAT(answer("data_parallel_sharding_strategy"), HasSubstr("0 for no_shard"));
}

// Names in sections of Strata, which users guess from the other keys there.
TEST(NamesElsewhere, IncludeGuessesInOurSections) {
  EXPECT_FAILURE(recipe_with({"parallel.data=2"}), Exit::usage,
                 HasSubstr("unknown key parallel.data (--set): not needed: the number of data ranks is ranks / "
                           "(parallel.tensor x parallel.stages)"));
  EXPECT_FAILURE(recipe_with({"zero.hpz_partition_size=2"}), Exit::usage,
                 HasSubstr("unknown key zero.hpz_partition_size (--set): use zero.parameters_group: the same number"));
}

TEST(NamesElsewhere, IncludeTorchtitanMegatronNanotronAndOthers) {
  for (const auto& [name, key] : {
           std::pair{"tokens.sequence_length", "data.seq_len"},
           {"tokens.train_steps", "training.max_steps"},
           {"tokens.batch_accumulation_per_replica", "training.gradient_accumulation_steps"},
           {"lr_scheduler.min_lr_factor", "scheduler.min_lr_ratio"},
           {"lr_scheduler.lr_min", "scheduler.min_lr_ratio"},
           {"lr_scheduler.decay_ratio", "scheduler.name"},
           {"pipeline.partition", "parallel.split"},
           {"pipeline.activation_checkpoint_interval", "training.recompute"},
           {"tensor_parallel.tp_grain_size", ""},
           {"aio.block_size", ""},
           {"parallelism.pp_engine", "parallel.schedule"},
           {"parallelism.dp", ""},
           {"model.name", "model.path"},
           {"parallelism.context_parallel_degree", ""},
           {"parallel.context", ""},
           {"parallel.expert", ""},
           {"pipeline_parallel_last_stage_less_layers", "parallel.split"},
           {"training.enable_cpu_offload", "zero.parameters"},
           {"checkpoint.enable", "checkpoint.dir"},
           {"checkpoint.initial_load_path", "model.path"},
           {"metrics.log_freq", "report.every"},
           {"validation.freq", "evaluation.every"},
           {"validation.steps", "evaluation.max_sequences"},
           {"megatron_lm_pp_degree", "parallel.stages"},
           {"fsdp_backward_prefetch_policy", "memory.prefetch"},
           {"ckpt-step", "checkpoint.resume"},
           {"eod-mask-loss", "data.packing"},
           {"exp-avg-dtype", "optimizer.moments"},
           {"cpu-offloading", "zero.activations"},
           {"checkpoints.checkpoint_interval", "checkpoint.every"},
           {"num_model_chunks", "parallel.chunks"},
           {"input_bin", "data.train"},
           {"total_batch_size", "training.global_batch_size"},
           {"learning_rate_decay_frac", "scheduler.min_lr_ratio"},
           {"random_state", "training.seed"},
       }) {
    const NameElsewhere* found = find_elsewhere(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->key, key) << name;
  }
}

// The search finds names, values and meanings, and invents nothing.
TEST(NamesElsewhere, AreFoundByValuesAndByDashes) {
  EXPECT_THAT(keys_about("cosine"), HasSubstr("scheduler.name = "));
  EXPECT_THAT(keys_about("Lion"), AllOf(HasSubstr("optimizer.name = "), Not(HasSubstr("data.long"))));
  EXPECT_THAT(keys_about("masked_lm"), HasSubstr("training.objective = "));
  EXPECT_THAT(keys_about("eval_f1"), HasSubstr("evaluation.metric = "));
  EXPECT_THAT(keys_about("accuracy"), HasSubstr("evaluation.metric = "));
  EXPECT_THAT(keys_about("adamw_torch"), HasSubstr("use optimizer.name = \"adamw\""));
  EXPECT_THAT(keys_about("global-batch-size"), HasSubstr("training.global_batch_size = "));
  EXPECT_THAT(keys_about("Micro Batch-Size"), HasSubstr("training.micro_batch_size = "));
  for (const char* config : {"model.config", "config", "model.config.rope_theta"})
    EXPECT_THAT(keys_about(config), HasSubstr("model.config.KEY\n")) << config;
  for (const char* nothing : {"foo", "qqqq", "bar", "xyzzy"})
    EXPECT_FAILURE((void)keys_about(nothing), Exit::usage,
                   AllOf(HasSubstr("no key has "), Not(HasSubstr("did you mean"))));
  EXPECT_FAILURE((void)keys_about("precison"), Exit::usage, HasSubstr("did you mean training.precision?"));
  EXPECT_THAT(keys_about(""),
              AllOf(StartsWith("model.path = none\n"), HasSubstr("report.every = "), Not(HasSubstr("(other tools)"))));
}

// Names that users of these programs type. docs/coming-from.md says that they are known.
TEST(NamesElsewhere, IncludeTrainerTrlAxolotlAndLlamaFactory) {
  for (const char* name :
       {"num_labels",      "training.num_labels", "id2label",         "label2id",        "problem_type",
        "compute_metrics", "mask_replace_prob",   "group_texts",      "eval_overall_f1", "special_tokens",
        "roles_to_train",  "unfrozen_parameters", "plugins",          "tokenizer_type",  "model_type",
        "strict",          "eval_table_size",     "dataset_num_proc", "eos_token",       "formatting_func",
        "loss_type",       "finetuning_type",     "overwrite_cache",  "plot_loss"})
    EXPECT_NE(find_elsewhere(name), nullptr) << name;
}

// The texts between backquotes, in order.
std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find('`', at)) != std::string::npos;) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    out.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return out;
}

// docs/coming-from.md agrees with the program: each name in the first column of a table is known, and the answer is
// among the keys next to it.
TEST(NamesElsewhere, ThePageAgreesWithTheProgram) {
  std::set<std::string, std::less<>> keys, parts;
  for (const RecipeKey& key : recipe_keys()) {
    keys.insert(key.name);
    parts.insert(key.name.substr(key.name.rfind('.') + 1));
  }
  // Values of another key in the same cell, and words that are not settings.
  const std::set<std::string> no_names = {"AdamW",   "Lion",    "SGD",     "Adam",
                                          "run_clm", "run_mlm", "run_ner", "AutoModelForMaskedLM"};
  std::ifstream file(tests::source_dir() / "docs/coming-from.md");
  ASSERT_TRUE(file);
  std::size_t names = 0;
  std::string section;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) section = line;
    if (!line.starts_with("| ") || line.starts_with("| stage")) continue;
    const std::size_t middle = line.find(" | ");
    ASSERT_NE(middle, std::string::npos) << line;
    std::set<std::string, std::less<>> answers;
    for (const std::string& text : quoted(line.substr(middle)))
      if (keys.contains(text.substr(0, text.find_first_of(" ="))))
        answers.insert(text.substr(0, text.find_first_of(" =")));
    for (std::string name : quoted(line.substr(0, middle))) {
      name = name.substr(0, name.find_first_of("(=:, "));
      if (name.ends_with(".*")) name.resize(name.size() - 2);
      if (name.ends_with(".py")) name.resize(name.size() - 3);
      for (std::size_t star; (star = name.find('*')) != std::string::npos;) name.erase(star);
      if (no_names.contains(name) || name.ends_with("_") || name.find("_*") != name.npos) continue;
      ++names;
      const NameElsewhere* found = find_elsewhere(name);
      if (!found) {
        EXPECT_TRUE(parts.contains(name.substr(name.rfind('.') + 1))) << "strata keys " << name << ", as in: " << line;
        continue;
      }
      if (!answers.empty() && !found->key.empty()) {
        EXPECT_TRUE(answers.contains(found->key)) << name << " is " << found->key << ", but: " << line;
      }
    }
  }
  EXPECT_GT(names, 100u);
}

TEST(EditsTest, OfAGlobCountLettersAlone) {
  const struct {
    const char *glob, *text;
    std::size_t edits;
  } cases[] = {{"*", "", 0},          {"*", "a.b", 0},    {"a*d", "abcd", 0},      {"*q_*", "a.q_proj.b", 0},
               {"*b", "abc", 1},      {"a*z", "abcd", 1}, {"*qu_*", "a.q_b.c", 1}, {"?bc", "abc", 0},
               {"[xyz]bc", "abc", 0}, {"[bc", "abc", 1},  {"", "abc", 3},          {"abc", "", 3},
               {"a?c", "ac", 1}};
  for (const auto& [glob, text, count] : cases) EXPECT_EQ(edits_of_glob(glob, text), count) << glob << " " << text;
}

}  // namespace
}  // namespace strata::runtime
