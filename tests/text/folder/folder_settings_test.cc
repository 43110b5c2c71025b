#include "text/folder/folder_settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "text/json/json_value.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ids = std::vector<std::uint32_t>;

const fs::path kGolden = fs::path(STRATA_SOURCE_DIR) / "tests/golden";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Ids ids_of(const Value& list) {
  Ids out;
  for (const Value& item : list.items()) out.push_back(static_cast<std::uint32_t>(item.integer()));
  return out;
}

std::string json_of(const Value& value) {
  if (value.is(Kind::text)) {
    std::string out = "\"";
    for (const char c : value.text()) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  }
  if (value.is(Kind::none)) return "null";
  if (value.is(Kind::boolean)) return value.boolean() ? "true" : "false";
  if (!value.is(Kind::dict) && !value.is(Kind::list)) return value.to_text();
  std::string out;
  if (value.is(Kind::list)) {
    for (const Value& item : value.items()) out += (out.empty() ? "" : ",") + json_of(item);
    return "[" + out + "]";
  }
  for (const auto& [key, item] : value.pairs()) out += (out.empty() ? "" : ",") + json_of(key) + ":" + json_of(item);
  return "{" + out + "}";
}

// What transformers reads in each folder (tests/golden/make_tokenizer_folders.py).
TEST(FolderSettingsTest, FoldersAsTransformersReadsThem) {
  const Value golden = parse_json(read(kGolden / "tokenizer_folders.json"));
  const auto& texts = golden.find("texts")->items();
  for (const Value& one : golden.find("cases")->items()) {
    SCOPED_TRACE(one.find("name")->text());
    const tests::ScratchFolder folder;
    for (const auto& [file, content] : one.find("files")->pairs()) {
      const Value* shared = content.is(Kind::text) ? golden.find("shared")->find(content.text()) : nullptr;
      if (shared)
        folder.write(file.text(), shared->text());
      else if (content.is(Kind::text))
        fs::copy(kGolden / content.text(), folder.path() / file.text());
      else
        folder.write(file.text(), json_of(content));
    }
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->vocab_size(), static_cast<std::uint32_t>(one.find("size")->integer()));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(texts[i].text()), ids_of(one.find("ids")->items()[i])) << texts[i].text();
      EXPECT_EQ(tokenizer->encode(texts[i].text(), true), ids_of(one.find("special")->items()[i])) << texts[i].text();
    }
    Ids pair;
    for (const auto& piece : tokenizer->text_template().pair) {
      if (piece.kind == TextTemplate::Kind::token) {
        pair.push_back(piece.id);
        continue;
      }
      const Ids part = tokenizer->encode(texts[piece.kind == TextTemplate::Kind::first ? 0 : 2].text());
      pair.insert(pair.end(), part.begin(), part.end());
    }
    if (!tokenizer->text_template().pair.empty()) {
      EXPECT_EQ(pair, ids_of(*one.find("pair")));
    }
  }
}

class FolderTest : public testing::Test {
 protected:
  // Copies a golden tokenizer.json.
  void take(const char* name) const {
    folder_.write("tokenizer.json", read(kGolden / "tokenizers" / name / "tokenizer.json"));
  }
  std::unique_ptr<Tokenizer> load() const { return load_tokenizer(folder_.path()); }
  tests::ScratchFolder folder_;
};

TEST_F(FolderTest, WhatContradictsTheTokenizerIsSaid) {
  take("bert_cased");
  EXPECT_THAT(load()->remarks(), IsEmpty());
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  EXPECT_THAT(load()->remarks(), IsEmpty());
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})");
  EXPECT_THAT(load()->remarks(), ElementsAre("do_lower_case = true of tokenizer_config.json is used, as in "
                                             "transformers, although tokenizer.json says false"));
  // The class's own default counts, too.
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_THAT(load()->remarks(), ElementsAre(HasSubstr("tokenizer_config.json does not say it")));
  // A class that takes the file as it is.
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true})");
  EXPECT_THAT(load()->remarks(), IsEmpty());
  folder_.write("config.json", R"({"model_type": "bert"})");
  fs::remove(folder_.path() / "tokenizer_config.json");
  EXPECT_THAT(load()->remarks(), ElementsAre(HasSubstr("do_lower_case = true")));
  take("smollm");
  folder_.write("config.json", R"({"model_type": "llama"})");
  folder_.write("tokenizer_config.json",
                R"({"bos_token": "<|im_start|>", "add_bos_token": true, "add_eos_token": false})");
  EXPECT_THAT(load()->remarks(), ElementsAre(AllOf(HasSubstr("add_bos_token = true"), HasSubstr("changes nothing"))));
}

// There the file counts, as for all models that were trained with transformers 4.
TEST_F(FolderTest, WhatTransformers4And5ReadDifferentlyIsSaid) {
  const auto remarks = [&](const char* name, const char* config, const char* type = "llama") {
    take(name);
    folder_.write("config.json", fmt::format(R"({{"model_type": "{}"}})", type));
    folder_.write("tokenizer_config.json", config);
    return load()->remarks();
  };
  const auto differs = [](const char* what, const char* name) {
    return ElementsAre(AllOf(HasSubstr(std::string("the ") + what + " of tokenizer.json"),
                             HasSubstr("as in transformers 4"), HasSubstr(std::string("anew for ") + name)));
  };
  const char* llama = R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})";
  EXPECT_THAT(remarks("llama2", llama), differs("normalizer and the pre_tokenizer", "LlamaTokenizer"));
  EXPECT_EQ(load()->encode(" lead</s>x"), load_tokenizer(kGolden / "tokenizers/llama2")->encode(" lead</s>x"));
  EXPECT_THAT(remarks("llama2", R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})"),
              ElementsAre(HasSubstr("add_prefix_space = false of tokenizer_config.json is used")));
  EXPECT_THAT(remarks("tinyllama", llama), IsEmpty());
  EXPECT_THAT(remarks("tinyllama", R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})"),
              differs("pre_tokenizer", "LlamaTokenizer"));
  EXPECT_THAT(remarks("llama3", llama), IsEmpty()) << "of bytes";
  EXPECT_THAT(remarks("llama2", llama, "mistral"), IsEmpty()) << "a type whose class is not believed";

  const char* gpt2 = R"({"tokenizer_class": "GPT2Tokenizer"})";
  EXPECT_THAT(remarks("gpt2", gpt2), IsEmpty());
  EXPECT_THAT(remarks("smollm", gpt2), differs("pre_tokenizer", "GPT2Tokenizer"));
  EXPECT_THAT(remarks("smollm", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})"),
              differs("pre_tokenizer", "GPT2Tokenizer"));
  EXPECT_EQ(load()->encode("x1234 y"), load_tokenizer(kGolden / "tokenizers/smollm")->encode("x1234 y"));
  EXPECT_THAT(remarks("qwen2", R"({"tokenizer_class": "Qwen2Tokenizer"})", "qwen3"), IsEmpty());
  EXPECT_THAT(remarks("llama3", R"({"tokenizer_class": "Qwen2Tokenizer"})", "qwen3"),
              differs("normalizer and the pre_tokenizer", "Qwen2Tokenizer"));
  EXPECT_THAT(remarks("words", R"({"tokenizer_class": "BertTokenizer"})"),
              differs("normalizer and the pre_tokenizer", "BertTokenizer"));
  EXPECT_THAT(remarks("xlmr", R"({"tokenizer_class": "XLMRobertaTokenizer"})", "xlm-roberta"),
              ElementsAre(HasSubstr("the template of XLMRobertaTokenizer")));
}

// Each of these could be mended only by guessing another file.
TEST_F(FolderTest, FoldersWithoutATokenizerSayWhatTheyAre) {
  folder_.write("adapter_config.json", "{}");
  EXPECT_FAILURE(load(), Exit::usage, AllOf(HasSubstr("holds an adapter (LoRA)"), HasSubstr("no tokenizer")));
  fs::create_symlink("../blobs/0123abcd", folder_.path() / "tokenizer.json");
  folder_.write("tokenizer.model", "of other ids");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("tokenizer.json is a link to ../blobs/0123abcd, which is not there"));
  fs::create_symlink("snapshots/none", folder_.path() / "model");
  EXPECT_FAILURE(load_tokenizer(folder_.path() / "model" / ""), Exit::usage, HasSubstr("is a link to snapshots/none"));
  fs::remove(folder_.path() / "tokenizer.json");
  folder_.write("tokenizer.json",
                "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("tokenizer.json is a Git LFS pointer"));
}

// Paths come as arguments, so that quotes and blanks in them break nothing.
TEST_F(FolderTest, WhatToRunIsACommand) {
  folder_.write("it's a/vocab.json", R"({"a": 0})");
  folder_.write("it's a/config.json", R"({"model_type": "t5"})");
  EXPECT_FAILURE(load_tokenizer(folder_.path() / "it's a"), Exit::usage,
                 AllOf(HasSubstr("save_pretrained(argv[1])\" '"), HasSubstr("it'\\''s a'")));
  folder_.write("it's a/config.json", R"({"model_type": "t5", "tokenizer_class": "BarthezTokenizer"})");
  fs::remove(folder_.path() / "it's a/vocab.json");
  fs::copy(kGolden / "tokenizers/sentencepiece/tokenizer.model", folder_.path() / "it's a/sentencepiece.bpe.model");
  EXPECT_FAILURE(load_tokenizer(folder_.path() / "it's a"), Exit::usage,
                 AllOf(HasSubstr("belongs to BarthezTokenizer"), HasSubstr("it'\\''s a'")));
}

TEST_F(FolderTest, TheMapCountsUnlessTheConfigurationListsTokens) {
  take("smollm");
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder_.write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_start|>"}})");
  EXPECT_EQ(load()->end_of_text(), load()->id_of("<|im_start|>"));
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(load()->end_of_text(), load()->id_of("<|im_end|>"));
}

TEST_F(FolderTest, BrokenFilesAreRefused) {
  take("smollm");
  folder_.write("added_tokens.json", R"({"<a>": "x"})");
  EXPECT_FAILURE(load(), Exit::corrupt, AllOf(HasSubstr("added_tokens.json"), HasSubstr("the number of \"<a>\"")));
  folder_.write("added_tokens.json", "[]");
  EXPECT_FAILURE(load(), Exit::corrupt, HasSubstr("expected a JSON object, found a list"));
  fs::remove(folder_.path() / "added_tokens.json");
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "x"}}})");
  EXPECT_FAILURE(load(), Exit::corrupt, HasSubstr("found \"-1\""));
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {"1": "x"}})");
  EXPECT_EQ(load()->id_of("x").has_value(), true);
  folder_.write("tokenizer_config.json", R"({"added_tokens_decoder": {"1": 5}})");
  EXPECT_FAILURE(load(), Exit::corrupt, HasSubstr("tokens with a \"content\""));
}

TEST_F(FolderTest, VocabulariesOfOtherClassesAreRefusedWithWhatToRun) {
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
  fs::copy(kGolden / "tokenizers/sentencepiece/tokenizer.model", folder_.path() / "sentencepiece.bpe.model");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("GPT2Tokenizer"));
  fs::remove(folder_.path() / "config.json");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("classes number its pieces differently"));
}

// Spaces that a token has taken hold no others: the library's ids.
TEST_F(FolderTest, SpacesThatATokenTookAreTaken) {
  take("smollm");
  folder_.write("tokenizer_config.json",
                R"({"added_tokens_decoder": {"900": {"content": "\n", "lstrip": true, "rstrip": true}}})");
  const auto tokenizer = load();
  const std::uint32_t line = *tokenizer->id_of("\n");
  const Ids a = tokenizer->encode("a"), b = tokenizer->encode("b");
  Ids wanted = a;
  wanted.push_back(line);
  wanted.insert(wanted.end(), b.begin(), b.end());
  EXPECT_EQ(tokenizer->encode("a\n\n\nb"), wanted);
  EXPECT_EQ(tokenizer->encode("a \n \n b"), wanted);
}

// Llama's template of turns: added tokens of a SentencePiece model come back as they were written.
TEST_F(FolderTest, AddedTokensOfSentencePieceAreDecoded) {
  fs::copy(kGolden / "tokenizers/sentencepiece_pairs/tokenizer.model", folder_.path() / "tokenizer.model");
  folder_.write(
      "tokenizer_config.json",
      R"({"tokenizer_class": "LlamaTokenizer", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})");
  const auto tokenizer = load();
  const std::string text = "<|im_start|>user the waters<|im_end|> and";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), false), text);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), true), "user the waters and");
  EXPECT_THAT(tokenizer->special_ids(), testing::Contains(*tokenizer->id_of("<|im_end|>")));
}

}  // namespace
}  // namespace strata::text
