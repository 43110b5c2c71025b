// Folders whose tokenizer is only a vocabulary, for a known class.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <utility>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
#include "text/folder/class_components.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using VocabularyFilesIds = std::vector<std::uint32_t>;

class VocabularyFilesTest : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> load() const { return load_tokenizer(folder_.path()); }
  tests::ScratchFolder folder_;
};

// The model's family is found in the same way. Such folders exist, with a vocab.txt and a config.json of 2020 that has
// only architectures.
TEST_F(VocabularyFilesTest, WithoutModelTypeArchitecturesNameTheClass) {
  folder_.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nA\nb\n");
  folder_.write("tokenizer_config.json", R"({"do_lower_case": false})");
  folder_.write("config.json", R"({"architectures": ["BertForMaskedLM"]})");
  EXPECT_EQ(load()->encode("A b a"), (VocabularyFilesIds{5, 6, 1}));
  for (const auto& [architecture, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"XLMRobertaForMaskedLM", "XLMRobertaTokenizer"}, {"OpenAIGPTLMHeadModel", "OpenAIGPTTokenizer"}}) {
    folder_.write("config.json", fmt::format(R"({{"architectures": ["{}"]}})", architecture));
    EXPECT_FAILURE(load(), Exit::usage, HasSubstr(name));
  }
  folder_.write("config.json", R"({"architectures": ["BerthaModel"]})");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("names the tokenizer class"));
}

// Such folders exist, with a vocab.txt that has [UNK] and the settings of another model's tokenizer.
TEST_F(VocabularyFilesTest, AVocabularyMustContainTheConfiguredUnknownToken) {
  folder_.write("vocab.txt", "[PAD]\n[UNK]\na\n");
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "unk_token": "<|endoftext|>"})");
  EXPECT_FAILURE(
      load(), Exit::corrupt,
      AllOf(HasSubstr("vocab.txt has no \"<|endoftext|>\""), HasSubstr("unk_token in tokenizer_config.json")));
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "unk_token": "[PAD]"})");
  EXPECT_EQ(load()->encode("a x"), (VocabularyFilesIds{2, 0}));
}

// The hash of such a tokenizer covers this text, so no byte of it may change.
TEST_F(VocabularyFilesTest, TheTextOfAVocabularyIsFixed) {
  const auto made = [&](const char* file) {
    return tokenizer_json_of(folder_.path() / file, folder_.read(file), read_folder_settings(folder_.path()));
  };
  folder_.write("vocab.txt", "[UNK]\na\\\n\x7f\n");
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  EXPECT_EQ(made("vocab.txt"),
            R"({"normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
            R"("strip_accents":false,"lowercase":false},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
            R"("decoder":{"type":"WordPiece","prefix":"##","cleanup":true},"model":{"type":"WordPiece",)"
            R"("unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,)"
            R"("vocab":{"[UNK]":0,"a\\":1,")"
            "\x7f\":2}}}");
  folder_.write("vocab.json", R"({"a": 0})");
  folder_.write("merges.txt", "a b\n");
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_EQ(made("vocab.json"),
            R"({"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split",)"
            R"("pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?)"
            R"([^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated",)"
            R"("invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
            R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","fuse_unk":false,"vocab":{"a": 0},)"
            R"("merges":[["a","b"]]}})");
}

TEST_F(VocabularyFilesTest, RefusesVocabulariesOfOtherClassesWithACommand) {
  folder_.write("vocab.txt", "a 1\n");
  folder_.write("bpe.codes", "a b 1\n");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("config.json"));
  folder_.write("config.json", R"({"model_type": "roberta", "tokenizer_class": "PhobertTokenizer"})");
  EXPECT_FAILURE(load(), Exit::usage, AllOf(HasSubstr("PhobertTokenizer"), HasSubstr("tokenize with transformers")));
  fs::remove(folder_.path() / "vocab.txt");
  folder_.write("vocab.json", "{}");
  folder_.write("config.json", R"({"model_type": "openai-gpt"})");
  EXPECT_FAILURE(load(), Exit::usage,
                 AllOf(HasSubstr("OpenAIGPTTokenizer"),
                       HasSubstr("save_pretrained(argv[1])\" " + folder_.path().string() + " writes")));
  folder_.write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("merges.txt is missing"));
  folder_.write("merges.txt", "#version: 0.2\na b c\n");
  EXPECT_FAILURE(load(), Exit::corrupt, HasSubstr("merges.txt, line 2"));
  fs::copy(tests::source_dir() / "tests/golden/tokenizers/sentencepiece/tokenizer.model",
           folder_.path() / "sentencepiece.bpe.model");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("GPT2Tokenizer"));
  fs::remove(folder_.path() / "config.json");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("decides how pieces are numbered"));
}

}  // namespace
}  // namespace strata::text
