#include "text/pipeline/tokenizer_hash.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
const fs::path kHashedTokenizers = tests::source_dir() / "tests/golden/tokenizers";

class TokenizerHashTest : public testing::Test {
 protected:
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string bytes_hash(const char* file) const {
    const std::string bytes = read(folder_.path() / file);
    return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
  }
  // The hash of the file and that of the tokenizer loaded from it are the same.
  std::string hash(const char* file) const {
    const std::string out = tokenizer_hash(folder_.path() / file);
    EXPECT_EQ(load_tokenizer(folder_.path() / file)->hash(), out);
    return out;
  }
  void write(const char* file, const std::string& text) const { folder_.write(file, text); }
  tests::ScratchFolder folder_;
};

TEST_F(TokenizerHashTest, AFolderWithoutChangesKeepsTheFilesHash) {
  write("tokenizer.json", read(kHashedTokenizers / "bert_cased/tokenizer.json"));
  EXPECT_EQ(hash("tokenizer.json"), bytes_hash("tokenizer.json"));
  write("config.json", R"({"model_type": "bert"})");
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false,
    "cls_token": "[CLS]", "model_max_length": 512, "padding_side": "right"})");
  EXPECT_EQ(hash("tokenizer.json"), bytes_hash("tokenizer.json"));
  write("tokenizer.model", read(kHashedTokenizers / "sentencepiece/tokenizer.model"));
  write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "additional_special_tokens": ["<s>"]})");
  EXPECT_EQ(hash("tokenizer.model"), bytes_hash("tokenizer.model"));
}

TEST_F(TokenizerHashTest, IncludesChangesMadeByTheFolder) {
  write("tokenizer.json", read(kHashedTokenizers / "bert_cased/tokenizer.json"));
  std::set<std::string> seen{hash("tokenizer.json")};
  for (const char* config :
       {R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})",
        R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false, "tokenize_chinese_chars": false})",
        R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false, "additional_special_tokens": ["<x>"]})",
        R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false, "additional_special_tokens": ["<y>"]})"}) {
    write("tokenizer_config.json", config);
    EXPECT_TRUE(seen.insert(hash("tokenizer.json")).second) << config;
  }
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false,
    "added_tokens_decoder": {"0": {"content": "<y>", "lstrip": true, "special": true}}})");
  EXPECT_TRUE(seen.insert(hash("tokenizer.json")).second) << "a flag";
  write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false,
    "chat_template": "{{ 1 }}"})");
  EXPECT_EQ(hash("tokenizer.json"), bytes_hash("tokenizer.json")) << "a chat template changes no ids";
  write("added_tokens.json", R"({"<z>": 40000})");
  EXPECT_TRUE(seen.insert(hash("tokenizer.json")).second);
  fs::remove(folder_.path() / "added_tokens.json");
  EXPECT_EQ(hash("tokenizer.json"), bytes_hash("tokenizer.json"));
}

TEST_F(TokenizerHashTest, IncludesTokensAddedToSentencePiece) {
  write("tokenizer.model", read(kHashedTokenizers / "sentencepiece/tokenizer.model"));
  const std::string plain = hash("tokenizer.model");
  write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer", "additional_special_tokens": ["<|turn|>"]})");
  EXPECT_NE(hash("tokenizer.model"), plain);
}

// Each of these changes the ids of a text. A token that the file itself marks changes none.
TEST_F(TokenizerHashTest, IncludesTheClassAndFlagsOfSentencePiece) {
  write("tokenizer.model", read(kHashedTokenizers / "sentencepiece_pairs/tokenizer.model"));
  std::set<std::string> seen{bytes_hash("tokenizer.model")};
  for (const char* config :
       {R"({"tokenizer_class": "LlamaTokenizer"})", R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})",
        R"({"tokenizer_class": "T5Tokenizer", "legacy": false})",
        R"({"tokenizer_class": "T5Tokenizer", "pad_token": "<nothing>"})",
        R"({"tokenizer_class": "T5Tokenizer", "additional_special_tokens": ["e"]})"}) {
    write("tokenizer_config.json", config);
    EXPECT_TRUE(seen.insert(hash("tokenizer.model")).second) << config;
  }
  for (const char* config : {R"({"tokenizer_class": "T5Tokenizer", "bos_token": "<s>", "unk_token": "<unk>"})",
                             R"({"tokenizer_class": "T5Tokenizer", "legacy": true, "chat_template": "{{ 1 }}"})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(hash("tokenizer.model"), bytes_hash("tokenizer.model")) << config;
  }
}

TEST_F(TokenizerHashTest, IncludesClassesThatRenumberPieces) {
  write("sentencepiece.bpe.model", read(kHashedTokenizers / "sentencepiece/tokenizer.model"));
  std::set<std::string> seen{bytes_hash("sentencepiece.bpe.model")};
  for (const char* type : {"xlm-roberta", "camembert"}) {
    write("config.json", fmt::format(R"({{"model_type": "{}"}})", type));
    EXPECT_TRUE(seen.insert(hash("sentencepiece.bpe.model")).second) << type;
  }
}

TEST_F(TokenizerHashTest, IncludesMergesAndSettingsOfAVocabulary) {
  write("vocab.json", R"({"a":0,"b":1,"c":2,"ab":3,"bc":4,"<|endoftext|>":5,"<s>":6,"</s>":7})");
  write("config.json", R"({"model_type": "gpt2"})");
  write("merges.txt", "#version: 0.2\na b\nb c\n");
  const std::string first = hash("vocab.json");
  std::set<std::string> seen{first};
  write("merges.txt", "#version: 0.2\nb c\na b\n");
  EXPECT_TRUE(seen.insert(hash("vocab.json")).second) << "different merges";
  write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_TRUE(seen.insert(hash("vocab.json")).second) << "add_prefix_space";
  write("tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_TRUE(seen.insert(hash("vocab.json")).second) << "the template";
  write("added_tokens.json", R"({"<x>": 8})");
  EXPECT_TRUE(seen.insert(hash("vocab.json")).second) << "added tokens";
  write("config.json", R"({"model_type": "roberta"})");
  EXPECT_TRUE(seen.insert(hash("vocab.json")).second) << "the class";
  for (const char* file : {"added_tokens.json", "tokenizer_config.json"}) fs::remove(folder_.path() / file);
  write("config.json", R"({"model_type": "gpt2"})");
  write("merges.txt", "#version: 0.2\na b\nb c\n");
  EXPECT_EQ(hash("vocab.json"), first);

  write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\na\nb\n");
  write("config.json", R"({"model_type": "bert"})");
  const std::string words = hash("vocab.txt");
  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_NE(hash("vocab.txt"), words);
}

TEST_F(TokenizerHashTest, HashesTheBytesOfAnUnreadFile) {
  write("vocab.json", R"({"a":0})");  // of no class
  EXPECT_EQ(tokenizer_hash(folder_.path() / "vocab.json"), bytes_hash("vocab.json"));
}

}  // namespace
}  // namespace strata::text
