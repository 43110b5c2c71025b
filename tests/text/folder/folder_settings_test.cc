#include "text/folder/folder_settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"
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
using FolderSettingsIds = std::vector<std::uint32_t>;

const fs::path kFolderSettingsGolden = tests::source_dir() / "tests/golden";

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

FolderSettingsIds ids_of(const Value& list) {
  FolderSettingsIds out;
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

// The settings that transformers reads from each folder (tests/golden/make_tokenizer_folders.py).
TEST(FolderSettingsTest, AgreesWithTransformers) {
  const Value golden = parse_json(read_whole(kFolderSettingsGolden / "tokenizer_folders.json"));
  const auto& texts = golden.find("texts")->items();
  for (const Value& one : golden.find("cases")->items()) {
    SCOPED_TRACE(one.find("name")->text());
    const tests::ScratchFolder folder;
    for (const auto& [file, content] : one.find("files")->pairs()) {
      const Value* shared = content.is(Kind::text) ? golden.find("shared")->find(content.text()) : nullptr;
      if (shared)
        folder.write(file.text(), shared->text());
      else if (content.is(Kind::text))
        fs::copy(kFolderSettingsGolden / content.text(), folder.path() / file.text());
      else
        folder.write(file.text(), json_of(content));
    }
    const auto tokenizer = load_tokenizer(folder.path());
    EXPECT_EQ(tokenizer->vocab_size(), static_cast<std::uint32_t>(one.find("size")->integer()));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(texts[i].text()), ids_of(one.find("ids")->items()[i])) << texts[i].text();
      EXPECT_EQ(tokenizer->encode(texts[i].text(), true), ids_of(one.find("special")->items()[i])) << texts[i].text();
    }
    FolderSettingsIds pair;
    for (const auto& piece : tokenizer->text_template().pair) {
      if (piece.kind == TextTemplate::Kind::token) {
        pair.push_back(piece.id);
        continue;
      }
      const FolderSettingsIds part = tokenizer->encode(texts[piece.kind == TextTemplate::Kind::first ? 0 : 2].text());
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
    folder_.write("tokenizer.json", read_whole(kFolderSettingsGolden / "tokenizers" / name / "tokenizer.json"));
  }
  std::unique_ptr<Tokenizer> load() const { return load_tokenizer(folder_.path()); }
  tests::ScratchFolder folder_;
};

TEST_F(FolderTest, ReportsContradictionsOfTheTokenizer) {
  take("bert_cased");
  EXPECT_THAT(load()->notes(), IsEmpty());
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  EXPECT_THAT(load()->notes(), IsEmpty());
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})");
  EXPECT_THAT(load()->notes(), ElementsAre("do_lower_case = true in tokenizer_config.json is used, as in "
                                           "transformers, although tokenizer.json says false"));
  // The class's own default counts, too.
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_THAT(load()->notes(), ElementsAre(HasSubstr("not set in tokenizer_config.json")));
  // This class uses the file unchanged.
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true})");
  EXPECT_THAT(load()->notes(), IsEmpty());
  folder_.write("config.json", R"({"model_type": "bert"})");
  fs::remove(folder_.path() / "tokenizer_config.json");
  EXPECT_THAT(load()->notes(), ElementsAre(HasSubstr("do_lower_case = true")));
  take("smollm");
  folder_.write("config.json", R"({"model_type": "llama"})");
  folder_.write("tokenizer_config.json",
                R"({"bos_token": "<|im_start|>", "add_bos_token": true, "add_eos_token": false})");
  EXPECT_THAT(load()->notes(), ElementsAre(AllOf(HasSubstr("add_bos_token = true"), HasSubstr("changes nothing"))));
}

// In these cases the file is used, as for all models that were trained with transformers 4.
TEST_F(FolderTest, ReportsDifferencesOfTransformers4And5) {
  const auto notes = [&](const char* name, const char* config, const char* type = "llama") {
    take(name);
    folder_.write("config.json", fmt::format(R"({{"model_type": "{}"}})", type));
    folder_.write("tokenizer_config.json", config);
    return load()->notes();
  };
  const auto differs = [](const char* what, const char* name) {
    return ElementsAre(AllOf(HasSubstr(std::string("the ") + what + " of tokenizer.json"),
                             HasSubstr("as in transformers 4"), HasSubstr(std::string(" for ") + name)));
  };
  const char* llama = R"({"tokenizer_class": "LlamaTokenizer", "legacy": false})";
  EXPECT_THAT(notes("llama2", llama), differs("normalizer and the pre_tokenizer", "LlamaTokenizer"));
  EXPECT_EQ(load()->encode(" lead</s>x"),
            load_tokenizer(kFolderSettingsGolden / "tokenizers/llama2")->encode(" lead</s>x"));
  EXPECT_THAT(notes("llama2", R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})"),
              ElementsAre(HasSubstr("add_prefix_space = false in tokenizer_config.json is used")));
  EXPECT_THAT(notes("tinyllama", llama), IsEmpty());
  EXPECT_THAT(notes("tinyllama", R"({"tokenizer_class": "LlamaTokenizer", "legacy": true})"),
              differs("pre_tokenizer", "LlamaTokenizer"));
  EXPECT_THAT(notes("llama3", llama), IsEmpty()) << "a byte-level tokenizer";
  EXPECT_THAT(notes("llama2", llama, "mistral"), IsEmpty()) << "a type whose tokenizer class is not trusted";

  const char* gpt2 = R"({"tokenizer_class": "GPT2Tokenizer"})";
  EXPECT_THAT(notes("gpt2", gpt2), IsEmpty());
  EXPECT_THAT(notes("smollm", gpt2), differs("pre_tokenizer", "GPT2Tokenizer"));
  EXPECT_THAT(notes("smollm", R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})"),
              differs("pre_tokenizer", "GPT2Tokenizer"));
  EXPECT_EQ(load()->encode("x1234 y"), load_tokenizer(kFolderSettingsGolden / "tokenizers/smollm")->encode("x1234 y"));
  EXPECT_THAT(notes("qwen2", R"({"tokenizer_class": "Qwen2Tokenizer"})", "qwen3"), IsEmpty());
  EXPECT_THAT(notes("llama3", R"({"tokenizer_class": "Qwen2Tokenizer"})", "qwen3"),
              differs("normalizer and the pre_tokenizer", "Qwen2Tokenizer"));
  EXPECT_THAT(notes("words", R"({"tokenizer_class": "BertTokenizer"})"),
              differs("normalizer and the pre_tokenizer", "BertTokenizer"));
  EXPECT_THAT(notes("xlmr", R"({"tokenizer_class": "XLMRobertaTokenizer"})", "xlm-roberta"),
              ElementsAre(HasSubstr("the template of XLMRobertaTokenizer")));
}

// Each of these folders could be repaired only by guessing another file.
TEST_F(FolderTest, DescribesFoldersWithoutATokenizer) {
  folder_.write("adapter_config.json", "{}");
  EXPECT_FAILURE(load(), Exit::usage, AllOf(HasSubstr("contains an adapter (LoRA)"), HasSubstr("no tokenizer")));
  fs::create_symlink("../blobs/0123abcd", folder_.path() / "tokenizer.json");
  folder_.write("tokenizer.model", "of other ids");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("tokenizer.json is a link to ../blobs/0123abcd, which does not exist"));
  fs::create_symlink("snapshots/none", folder_.path() / "model");
  EXPECT_FAILURE(load_tokenizer(folder_.path() / "model" / ""), Exit::usage, HasSubstr("is a link to snapshots/none"));
  fs::remove(folder_.path() / "tokenizer.json");
  folder_.write("tokenizer.json",
                "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n");
  EXPECT_FAILURE(load(), Exit::usage, HasSubstr("tokenizer.json is a Git LFS pointer"));
}

// Paths are passed as arguments, so that they may contain quotes and spaces.
TEST_F(FolderTest, AdviceIsAValidCommand) {
  folder_.write("it's a/vocab.json", R"({"a": 0})");
  folder_.write("it's a/config.json", R"({"model_type": "t5"})");
  EXPECT_FAILURE(load_tokenizer(folder_.path() / "it's a"), Exit::usage,
                 AllOf(HasSubstr("save_pretrained(argv[1])\" '"), HasSubstr("it'\\''s a'")));
  folder_.write("it's a/config.json", R"({"model_type": "t5", "tokenizer_class": "BarthezTokenizer"})");
  fs::remove(folder_.path() / "it's a/vocab.json");
  fs::copy(kFolderSettingsGolden / "tokenizers/sentencepiece/tokenizer.model",
           folder_.path() / "it's a/sentencepiece.bpe.model");
  EXPECT_FAILURE(load_tokenizer(folder_.path() / "it's a"), Exit::usage,
                 AllOf(HasSubstr("belongs to BarthezTokenizer"), HasSubstr("it'\\''s a'")));
}

TEST_F(FolderTest, TheMapAppliesUnlessTheConfigurationListsTokens) {
  take("smollm");
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder_.write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_start|>"}})");
  EXPECT_EQ(load()->end_of_text(), load()->id_of("<|im_start|>"));
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(load()->end_of_text(), load()->id_of("<|im_end|>"));
}

// RoBERTa's vocabulary has <|endoftext|> as a word; no file names the class's </s>.
TEST_F(FolderTest, TheClassProvidesTheEndOfText) {
  folder_.write("vocab.json", R"({"<s>":0,"<pad>":1,"</s>":2,"<unk>":3,"a":4,"b":5,"ab":6,"<|endoftext|>":7})");
  folder_.write("merges.txt", "#version: 0.2\na b\n");
  folder_.write("config.json", R"({"model_type": "roberta"})");
  EXPECT_EQ(load()->end_of_text(), 2u);
  folder_.write("tokenizer_config.json", R"({"model_max_length": 512})");
  EXPECT_EQ(load()->end_of_text(), 2u);
  folder_.write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(load()->end_of_text(), 7u);
  folder_.write("tokenizer_config.json", R"({"eos_token": "<s>"})");
  EXPECT_EQ(load()->end_of_text(), 0u);
}

// As in transformers, where eos_token is then None: no word of the vocabulary takes its place.
TEST_F(FolderTest, ANullEndOfTextMeansNone) {
  folder_.write("vocab.json", R"({"<s>":0,"<pad>":1,"</s>":2,"<unk>":3,"a":4,"b":5,"ab":6,"<|endoftext|>":7})");
  folder_.write("merges.txt", "#version: 0.2\na b\n");
  folder_.write("config.json", R"({"model_type": "roberta"})");
  folder_.write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(load()->end_of_text(), std::nullopt);
  for (const char* file : {"vocab.json", "merges.txt", "config.json"}) fs::remove(folder_.path() / file);
  fs::copy(kFolderSettingsGolden / "tokenizers/sentencepiece/tokenizer.model", folder_.path() / "tokenizer.model");
  EXPECT_EQ(load()->end_of_text(), std::nullopt);
  folder_.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(load()->end_of_text(), load()->id_of("</s>"));
}

TEST_F(FolderTest, TheConfigurationProvidesTheMask) {
  folder_.write("tokenizer.json",
                R"({"pre_tokenizer":{"type":"WhitespaceSplit"},"model":{"type":"WordLevel","unk_token":"<unk>",)"
                R"("vocab":{"<unk>":0,"a":1,"b":2,"<blank>":3,"[MASK]":4}}})");
  EXPECT_EQ(load()->mask_id(), 4u);
  folder_.write("tokenizer_config.json", R"({"mask_token": "<blank>"})");
  EXPECT_EQ(load()->mask_id(), 3u);
  EXPECT_EQ(load()->encode("a <blank> b"), (FolderSettingsIds{1, 3, 2}));
  folder_.write("tokenizer_config.json", R"({"mask_token": {"content": "<new>"}})");
  EXPECT_EQ(load()->mask_id(), 5u) << "the next id, as in transformers";
  fs::remove(folder_.path() / "tokenizer.json");
  fs::copy(kFolderSettingsGolden / "tokenizers/sentencepiece/tokenizer.model", folder_.path() / "tokenizer.model");
  folder_.write("tokenizer_config.json", R"({"mask_token": "</s>"})");
  EXPECT_EQ(load()->mask_id(), load()->id_of("</s>"));
}

// This applies to all classes and in both directions. (The IDs are those of transformers 5.24.)
TEST_F(FolderTest, FlagsOfListedTokensApply) {
  const auto flags = [](std::string_view flag) {
    std::string out = R"("content":"</s>")";
    for (const std::string_view one : {"special", "lstrip", "rstrip", "single_word", "normalized"})
      out += fmt::format(R"(,"{}":{})", one, one == flag || (one == "special" && flag != "normalized"));
    return out;
  };
  struct Case {
    const char* flag;
    FolderSettingsIds spaced, tight, end;  // of "x </s> y", "x</s>y" and "x </s>"
  };
  const Case cases[] = {{"", {1, 4, 3, 4, 2}, {1, 3, 2}, {1, 4, 3}},
                        {"lstrip", {1, 3, 4, 2}, {1, 3, 2}, {1, 3}},
                        {"rstrip", {1, 4, 3, 2}, {1, 3, 2}, {1, 4, 3}},
                        {"single_word", {1, 4, 3, 4, 2}, {1, 0, 0, 0, 0, 2}, {1, 4, 3}},
                        {"normalized", {1, 4, 3, 4, 2}, {1, 3, 2}, {1, 4, 3}}};
  for (const char* own : {"", "lstrip", "single_word", "normalized"}) {
    folder_.write("tokenizer.json",
                  fmt::format(R"({{"added_tokens":[{{"id":3,{}}}],"normalizer":{{"type":"Replace",)"
                              R"("pattern":{{"String":" "}},"content":"Ġ"}},"pre_tokenizer":{{"type":"Split",)"
                              R"("pattern":{{"Regex":"."}},"behavior":"Isolated","invert":false}},"model":{{)"
                              R"("type":"WordLevel","unk_token":"<unk>",)"
                              R"("vocab":{{"<unk>":0,"x":1,"y":2,"</s>":3,"Ġ":4}}}}}})",
                              flags(own)));
    for (const char* name : {R"("tokenizer_class":"PreTrainedTokenizerFast",)", ""})
      for (const Case& one : cases) {
        SCOPED_TRACE(fmt::format("{} over {} of {}", one.flag, own, name));
        folder_.write("tokenizer_config.json",
                      fmt::format(R"({{{}"added_tokens_decoder":{{"3":{{{}}}}}}})", name, flags(one.flag)));
        EXPECT_EQ(load()->encode("x </s> y"), one.spaced);
        EXPECT_EQ(load()->encode("x</s>y"), one.tight);
        EXPECT_EQ(load()->encode("x </s>"), one.end);
      }
  }
}

// The same for a tokenizer.model. (The IDs are those of transformers 5.24.)
TEST_F(FolderTest, FlagsOfListedTokensApplyToPieces) {
  fs::copy(kFolderSettingsGolden / "tokenizers/sentencepiece_pairs/tokenizer.model",
           folder_.path() / "tokenizer.model");
  const auto flagged = [&](std::string_view flag) {
    folder_.write("tokenizer_config.json",
                  fmt::format(R"({{"tokenizer_class":"LlamaTokenizer","added_tokens_decoder":{{"2":{{)"
                              R"("content":"</s>","{}":true,"special":true}}}}}})",
                              flag));
    return load();
  };
  const auto strips_before = flagged("lstrip"), strips_after = flagged("rstrip"), word = flagged("single_word");
  EXPECT_EQ(strips_before->encode("the </s> waters"), (FolderSettingsIds{261, 2, 717, 451}));
  EXPECT_EQ(strips_after->encode("the </s> waters"), (FolderSettingsIds{261, 720, 2, 737, 281, 451}));
  EXPECT_EQ(word->encode("the </s> waters"), (FolderSettingsIds{261, 720, 2, 717, 451}));
  EXPECT_EQ(word->encode("the</s>waters"), (FolderSettingsIds{261, 824, 796, 727, 821, 737, 281, 451}));
  EXPECT_NE(strips_before->hash(), strips_after->hash());
}

TEST_F(FolderTest, SplittingSpecialTokensIsRefused) {
  take("smollm");
  folder_.write("tokenizer_config.json", R"({"split_special_tokens": false})");
  EXPECT_NE(load(), nullptr);
  folder_.write("tokenizer_config.json", R"({"split_special_tokens": true})");
  EXPECT_FAILURE(load(), Exit::usage,
                 AllOf(HasSubstr("tokenizer_config.json: split_special_tokens = true is not supported"),
                       HasSubstr("set it to false")));
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

// Python writes such numbers, and integers of any length, into fields that nothing here reads.
TEST_F(FolderTest, AcceptsPythonsNumbers) {
  folder_.write("vocab.txt", "[PAD]\n[UNK]\nA\nb\n");
  folder_.write("tokenizer_config.json",
                R"({"model_max_length": Infinity, "x": {"y": [{"z": 1000000000000000019884624838656}]},
                    "do_lower_case": false})");
  folder_.write("config.json", R"({"model_type": "bert", "x": NaN})");
  EXPECT_EQ(load()->encode("A b"), (FolderSettingsIds{2, 3}));
  folder_.write("added_tokens.json", R"({"<a>": Infinity})");
  EXPECT_FAILURE(load(), Exit::corrupt, HasSubstr("expected the number of \"<a>\""));
}

// Spaces that belong to one token cannot be part of another. The IDs are the library's.
TEST_F(FolderTest, ASpaceBelongsToOneToken) {
  take("smollm");
  folder_.write("tokenizer_config.json",
                R"({"added_tokens_decoder": {"900": {"content": "\n", "lstrip": true, "rstrip": true}}})");
  const auto tokenizer = load();
  const std::uint32_t line = *tokenizer->id_of("\n");
  const FolderSettingsIds a = tokenizer->encode("a"), b = tokenizer->encode("b");
  FolderSettingsIds wanted = a;
  wanted.push_back(line);
  wanted.insert(wanted.end(), b.begin(), b.end());
  EXPECT_EQ(tokenizer->encode("a\n\n\nb"), wanted);
  EXPECT_EQ(tokenizer->encode("a \n \n b"), wanted);
}

// Llama's template of turns: added tokens of a SentencePiece model come back as they were written.
TEST_F(FolderTest, DecodesAddedTokensOfSentencePiece) {
  fs::copy(kFolderSettingsGolden / "tokenizers/sentencepiece_pairs/tokenizer.model",
           folder_.path() / "tokenizer.model");
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
