#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "runtime/weights/adapter/peft_folder.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

PeftConfig read_with(const std::string& keys) {
  const tests::ScratchFolder folder;
  folder.write(kPeftConfigName, R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"])" +
                                    (keys.empty() ? keys : ", " + keys) + "}");
  return read_peft_config(folder.path());
}

// The configuration that peft 0.18 saves for an adapter with the defaults of its LoraConfig.
TEST(PeftConfig, DefaultsOfPeftChangeNothing) {
  const PeftConfig config = read_with(
      R"("alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null, "bias": "none",
         "corda_config": null, "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
         "fan_in_fan_out": false, "inference_mode": true, "layer_replication": null, "layers_pattern": null,
         "layers_to_transform": null, "loftq_config": {}, "lora_bias": false, "megatron_config": null,
         "megatron_core": "megatron.core", "peft_version": "0.18.0", "qalora_group_size": 16, "revision": null,
         "target_parameters": null, "trainable_token_indices": null, "use_qalora": false, "use_dora": false,
         "monteclora_config": null, "velora_config": null, "use_bdlora": null, "kasa_config": null)");
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(PeftConfig, AcceptsInitialisationsThatKeepTheModel) {
  for (const char* init : {"true", "false", "null", "\"gaussian\"", "\"eva\"", "\"orthogonal\""})
    EXPECT_THAT(read_with(fmt::format(R"("init_lora_weights": {})", init)).notes, IsEmpty()) << init;
  EXPECT_EQ(read_with(R"("init_lora_weights": "gaussian")").adapter.init, models::AdapterInit::gaussian);
  EXPECT_THAT(read_with(R"("init_lora_weights": "eva", "eva_config": {"rho": 2.0})").notes, IsEmpty());
  EXPECT_THAT(read_with(R"("init_lora_weights": "mica")").notes, ElementsAre(HasSubstr("trains A and B")));
  EXPECT_THAT(read_with(R"("init_lora_weights": "of_tomorrow")").notes,
              ElementsAre(AllOf(HasSubstr("\"of_tomorrow\""), HasSubstr("not known"))));
}

TEST(PeftConfig, RefusesInitialisationsThatChangeTheModel) {
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "OLoRA", "corda", "lora_ga"})
    EXPECT_FAILURE(read_with(fmt::format(R"("init_lora_weights": "{}")", init)), Exit::usage,
                   AllOf(HasSubstr(fmt::format("\"{}\"", init)), HasSubstr("path_initial_model")));
  // peft converts none of these.
  for (const char* init : {"loftq", "milora"})
    EXPECT_FAILURE(read_with(fmt::format(R"("init_lora_weights": "{}")", init)), Exit::usage,
                   AllOf(HasSubstr(fmt::format("\"{}\"", init)), HasSubstr("merge_and_unload")));
}

TEST(PeftConfig, KeysOfTheTrainingAreNamedAndIgnored) {
  EXPECT_THAT(read_with(R"("lora_dtype": "bfloat16", "lorap_lr_ratio": 16.0, "swift_version": "3")").notes,
              ElementsAre(AllOf(HasSubstr("3 keys that are not read and change nothing"),
                                HasSubstr("lora_dtype, lorap_lr_ratio, swift_version"))));
  EXPECT_THAT(read_with(R"("velora_config": {"num_groups": 1})").notes,
              ElementsAre(HasSubstr("1 key that is not read and changes nothing that an adapter computes: velora")));
}

TEST(PeftConfig, UnknownKeysAreRefusedUnlessTheyAreOff) {
  EXPECT_FAILURE(read_with(R"("of_tomorrow": {"a": [1]})"), Exit::usage,
                 AllOf(HasSubstr(R"(of_tomorrow = {"a":[1]} is not known)"), HasSubstr("merge_and_unload")));
  EXPECT_FAILURE(read_with(R"("some_new_key": 3, "lora_dtype": "bfloat16")"), Exit::usage, HasSubstr("new_key = 3 is"));
  for (const char* off : {"null", "false", "[]", "{}", "\"\""})
    EXPECT_THAT(read_with(fmt::format(R"("of_tomorrow": {0}, "lora_bias": {0}, "use_qalora": {0})", off)).notes,
                IsEmpty())
        << off;
}

TEST(PeftConfig, RefusesOtherMathematicsByKey) {
  for (const char* key :
       {R"("trainable_token_indices": [1])", R"("target_parameters": ["experts"])",
        R"("layer_replication": [[0, 4], [2, 5]])", R"("lora_bias": true)", R"("use_qalora": true)",
        R"("use_bdlora": {"nblocks": 2})", R"("arrow_config": {"top_k": 3})", R"("alora_invocation_tokens": [5])",
        R"("kasa_config": {"beta": 0.1})", R"("monteclora_config": {"num_samples": 8})",
        R"("enable_lora": [true, false, true])", R"("use_mora": true)", R"("bias": "all")"}) {
    const std::string text = key;
    EXPECT_FAILURE(read_with(text), Exit::usage, HasSubstr(text.substr(1, text.find('"', 1) - 1)));
  }
  // The advice depends on whether peft can merge the adapter.
  for (const char* key : {R"("layer_replication": [[0, 4], [2, 5]])", R"("arrow_config": {"top_k": 3})",
                          R"("alora_invocation_tokens": [5])"})
    EXPECT_FAILURE(read_with(key), Exit::usage, EndsWith("is not supported; train and run it with peft"));
  EXPECT_FAILURE(read_with(R"("lora_bias": true)"), Exit::usage, HasSubstr("; merge it into its model with peft"));
  EXPECT_FAILURE(read_with(R"("layers_to_transform": [0], "layers_pattern": "stages")"), Exit::usage,
                 HasSubstr("layers_pattern"));
  EXPECT_THAT(read_with(R"("layers_to_transform": [0], "layers_pattern": ["layers", "h"])").notes, IsEmpty());
}

TEST(PeftConfig, ListsWhatOtherProgramsDoNotRead) {
  const auto notes = [](auto&& change) {
    models::Adapter adapter{.target_modules = {{"q_proj"}, {}}};
    change(adapter);
    return notes_of_readers(adapter);
  };
  EXPECT_THAT(notes([](models::Adapter&) {}), IsEmpty());
  EXPECT_THAT(notes([](models::Adapter& a) { a.dora = true; }), ElementsAre(HasSubstr("refuse DoRA: for them")));
  EXPECT_THAT(notes([](models::Adapter& a) { a.modules_to_save = {"lm_head"}; }),
              ElementsAre(HasSubstr("refuse adapters with modules_to_save")));
  EXPECT_THAT(notes([](models::Adapter& a) { a.rslora = true; }),
              ElementsAre(AllOf(HasSubstr("llama.cpp"), HasSubstr("does not read use_rslora, and would"))));
  EXPECT_THAT(notes([](models::Adapter& a) {
                a.rank_pattern = {{"q_proj", 2}};
              }),
              ElementsAre(AllOf(HasSubstr("vLLM"), HasSubstr("does not read rank_pattern, and would"))));
  EXPECT_THAT(notes([](models::Adapter& a) {
                a.alpha_pattern = {{"q_proj", 2.0}};
                a.rslora = true;
              }),
              ElementsAre(HasSubstr("does not read use_rslora and alpha_pattern"), HasSubstr("read alpha_pattern")));
}

// The keys have defaults, but null does not mean the default.
TEST(PeftConfig, RankAndAlphaAreNumbers) {
  EXPECT_EQ(read_with("").adapter.alpha, 8);
  EXPECT_FAILURE(read_with(R"("lora_alpha": null)"), Exit::corrupt,
                 HasSubstr(R"(expected a number above 0 at "lora_alpha", found null)"));
  EXPECT_FAILURE(read_with(R"("lora_alpha": "16")"), Exit::corrupt, HasSubstr("expected a number at"));
  for (const char* alpha : {"0", "-4.5"})
    EXPECT_FAILURE(
        read_with(fmt::format(R"("lora_alpha": {})", alpha)), Exit::usage,
        AllOf(HasSubstr(fmt::format("lora_alpha = {} is not supported, because it must be above 0; merge it", alpha)),
              HasSubstr("merge_and_unload")));
  for (const char* alpha : {"0", "-0.5"})
    EXPECT_FAILURE(read_with(fmt::format(R"("alpha_pattern": {{"k_proj": 2, "q_proj": {}}})", alpha)), Exit::usage,
                   AllOf(HasSubstr(fmt::format("alpha_pattern's \"q_proj\" = {} is not supported, because", alpha)),
                         HasSubstr("merge_and_unload")));
  // peft refuses such ranks, too, so the file is damaged.
  EXPECT_FAILURE(read_with(R"("rank_pattern": {"q_proj": 0})"), Exit::corrupt, HasSubstr("whole numbers from 1 to"));
  EXPECT_FAILURE(read_with(R"("alpha_pattern": {"q_proj": "2"})"), Exit::corrupt, HasSubstr("numbers above 0"));
  const tests::ScratchFolder folder;
  folder.write(kPeftConfigName, R"({"peft_type": "LORA", "r": null, "target_modules": ["q_proj"]})");
  EXPECT_FAILURE(read_peft_config(folder.path()), Exit::corrupt, HasSubstr(R"(a rank at "r", found null)"));
}

TEST(PeftConfig, RefusesOtherAdapters) {
  const tests::ScratchFolder folder;
  folder.write(kPeftConfigName, R"({"peft_type": "IA3", "target_modules": ["k_proj"]})");
  EXPECT_FAILURE(read_peft_config(folder.path()), Exit::usage, HasSubstr("\"IA3\""));
}

}  // namespace
}  // namespace strata::runtime
