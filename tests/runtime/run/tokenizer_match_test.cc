#include "runtime/run/tokenizer_match.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <xxhash.h>

#include <string>
#include <vector>

#include "models/files/config.h"
#include "models/model.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"
#include "text/tokenizer.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kTokenizer = R"({"model":{"type":"BPE"}})", kByte = "byte";

class TokenizerMatchTest : public testing::Test {
 protected:
  static std::string hash_of(std::string_view bytes) {
    return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  }
  // Six tokens whose sidecar says that a tokenizer of this hash made them.
  TokenFile tokens(const std::string& tokenizer, const std::string& hash) const {
    const auto path = run_.folder().write("t.bin", std::string(12, '\0'));
    run_.folder().write("t.bin.json",
                        to_json({.vocab_size = 100, .tokenizer = tokenizer, .tokenizer_hash = hash, .count = 6}));
    return {path, 130};  // the model's vocabulary is padded
  }
  void compare(const TokenFile& file, const std::vector<std::string>& sets) const {
    require_tokens_of_model({.recipe = load_recipe(std::nullopt, sets), .description = {}}, {&file, 1});
  }
  std::string model(const std::string& name) const { return "model.path=" + (run_.folder().path() / name).string(); }
  SavedRun run_;
};

TEST_F(TokenizerMatchTest, TokensOfAnotherTokenizerAreRefused) {
  run_.folder().write("model/config.json", "{}");
  run_.folder().write("model/tokenizer.json", kTokenizer);
  const TokenFile byte = tokens("byte", hash_of(kByte));
  EXPECT_FAILURE(compare(byte, {model("model")}), Exit::usage,
                 AllOf(HasSubstr("t.bin holds tokens of the tokenizer byte"), HasSubstr("/model has a different"),
                       HasSubstr("tokenize the texts again with strata tokenize --tokenizer"),
                       HasSubstr("data.any_tokenizer = true")));
  EXPECT_FAILURE(compare(byte, {model("model"), "model.init=random"}), Exit::usage, HasSubstr("byte"));
  compare(byte, {model("model"), "data.any_tokenizer=true"});
}

TEST_F(TokenizerMatchTest, ComparesContentsAndNotPaths) {
  run_.folder().write("model/config.json", "{}");
  run_.folder().write("model/tokenizer.json", kTokenizer);
  compare(tokens("elsewhere", hash_of(kTokenizer)), {model("model")});
  // If two files define the tokenizer, the tokens may come from either.
  run_.folder().write("model/tokenizer.model", "pieces");
  compare(tokens("tokenizer.model", hash_of("pieces")), {model("model")});
  compare(tokens("model", hash_of(kTokenizer)), {model("model")});
  EXPECT_FAILURE(compare(tokens("other", hash_of("others")), {model("model")}), Exit::usage, HasSubstr("other"));
}

// Two tokenizers may have one vocabulary: merges and settings tell them apart.
TEST_F(TokenizerMatchTest, AVocabularyWithOtherMergesIsAnotherTokenizer) {
  const auto write = [&](const std::string& folder, const char* merges, const char* settings) {
    run_.folder().write(folder + "/config.json", R"({"model_type":"gpt2"})");
    run_.folder().write(folder + "/vocab.json", R"({"a":0,"b":1,"c":2,"ab":3,"bc":4})");
    run_.folder().write(folder + "/merges.txt", merges);
    run_.folder().write(folder + "/tokenizer_config.json", settings);
    return text::load_tokenizer(run_.folder().path() / folder)->hash();
  };
  const std::string own = write("model", "a b\nb c\n", "{}");
  compare(tokens("same", write("same", "a b\nb c\n", "{}")), {model("model")});
  EXPECT_FAILURE(compare(tokens("merges", write("merges", "b c\na b\n", "{}")), {model("model")}), Exit::usage,
                 HasSubstr("the tokenizer merges"));
  EXPECT_FAILURE(
      compare(tokens("prefix", write("prefix", "a b\nb c\n", R"({"add_prefix_space":true})")), {model("model")}),
      Exit::usage, HasSubstr("the tokenizer prefix"));
  compare(tokens("model", own), {model("model")});
}

TEST_F(TokenizerMatchTest, DoesNotCompareWithoutATokenizer) {
  run_.folder().write("plain/config.json", "{}");
  run_.folder().write("model/config.json", "{}");
  run_.folder().write("model/tokenizer.json", kTokenizer);
  const TokenFile byte = tokens("byte", hash_of(kByte));
  compare(byte, {"model.preset=tiny-gpt2"});
  compare(byte, {model("plain")});
  compare(tokens("", ""), {model("model")});
  const TokenFile bare(run_.folder().write("bare.bin", std::string(12, '\0')), 130);  // nanoGPT's
  compare(bare, {model("model")});
}

TEST_F(TokenizerMatchTest, ACheckpointComesWithTheTokenizerOfItsDirectory) {
  run_.folder().write("model/config.json", models::preset_config("tiny-gpt2"));
  run_.folder().write("model/tokenizer.json", kTokenizer);
  auto sets = run_.sets(1, {"model.init=random"});
  sets[0] = model("model");
  run_.run(1, sets, 1, {1});
  EXPECT_FAILURE(compare(tokens("byte", hash_of(kByte)), {model("checkpoints")}), Exit::usage, HasSubstr("/model"));
  compare(tokens("model", hash_of(kTokenizer)), {model("checkpoints")});
  std::filesystem::remove_all(run_.folder().path() / "model");
  compare(tokens("byte", hash_of(kByte)), {model("checkpoints")});
}

// BERT with a single row of types is a special model. DistilBERT has no types and gets none.
TEST_F(TokenizerMatchTest, RefusesTypesUnknownToTheModel) {
  const auto path = run_.folder().write("t.bin", std::string(12, '\0'));
  TokenSidecar sidecar{.vocab_size = 100, .tokenizer = "made", .count = 6};
  const auto check = [&](const std::string& config, bool typed) {
    sidecar.types.reset();
    const auto types = run_.folder().write("t.bin.types", std::string(1, '\1'));
    if (typed) sidecar.types = {.count = 1, .hash = hash_of(std::string(1, '\1'))};
    if (!typed) std::filesystem::remove(types);
    run_.folder().write("t.bin.json", to_json(sidecar));
    models::RunShape shape{1, 4, device::DType::fp32, 1};
    shape.objective = models::Objective::masked_lm;
    const auto model = models::make_model(models::Config::parse(config, "config.json"), shape);
    const TokenFile file(path, 130);
    require_types_of_model(*model, {&file, 1});
  };
  const auto bert = [](int types) {
    return fmt::format(R"({{"model_type":"bert","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":1,
                           "intermediate_size":12,"vocab_size":100,"max_position_embeddings":4,
                           "type_vocab_size":{}}})",
                       types);
  };
  check(bert(2), true);
  check(bert(1), false);
  check(R"({"model_type":"distilbert","dim":8,"n_heads":2,"n_layers":1,"hidden_dim":12,"vocab_size":100,
            "max_position_embeddings":4})",
        true);
  EXPECT_FAILURE(check(bert(1), true), Exit::usage,
                 AllOf(HasSubstr("t.bin holds tokens of two types"), HasSubstr("bert models have only one type")));
  for (const char* family : {"roberta", "xlm-roberta", "camembert"}) {
    SCOPED_TRACE(family);
    const std::string one = fmt::format(R"({{"model_type":"{}","hidden_size":8,"num_attention_heads":2,
        "num_hidden_layers":1,"intermediate_size":12,"vocab_size":100,"max_position_embeddings":8,
        "type_vocab_size":1,"pad_token_id":1}})",
                                        family);
    check(one, false);
    EXPECT_FAILURE(check(one, true), Exit::usage, HasSubstr("t.bin holds tokens of two types"));
  }
}

}  // namespace
}  // namespace strata::runtime
