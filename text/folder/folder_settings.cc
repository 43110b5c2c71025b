#include "text/folder/folder_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "base/quote.h"
#include "text/folder/folder_files.h"
#include "text/json/json.h"
#include "text/json/json_value.h"
#include "text/subwords/vocabulary.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;
constexpr std::array<std::string_view, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                    "pad_token", "cls_token", "mask_token"};

std::optional<bool> flag(const Value& object, std::string_view key) {
  const Value* found = object.find(key);
  if (!found || !found->is(Kind::boolean)) return std::nullopt;
  return found->boolean();
}

std::string text_or(const Value* object, std::string_view key, std::string_view otherwise) {
  const Value* found = object ? object->find(key) : nullptr;
  return std::string(found && found->is(Kind::text) ? found->text() : std::string(otherwise));
}

// A token in these files is a text or an object. special: the default if the object does not have the flag.
std::optional<AddedToken> token_of(const Value& value, bool special) {
  AddedToken out{.id = kNextId, .content = {}, .special = special};
  if (value.is(Kind::text)) {
    out.content = value.text();
  } else {
    const Value* content = value.is(Kind::dict) ? value.find("content") : nullptr;
    if (!content || !content->is(Kind::text)) return std::nullopt;
    out.content = content->text();
    out.special = flag(value, "special").value_or(special);
    out.left_strip = flag(value, "lstrip").value_or(false);
    out.right_strip = flag(value, "rstrip").value_or(false);
    out.single_word = flag(value, "single_word").value_or(false);
  }
  out.normalized = (value.is(Kind::dict) ? flag(value, "normalized") : std::nullopt).value_or(!out.special);
  return out;
}

std::uint32_t id_of_text(std::string_view text, const fs::path& path) {
  const auto id = parse_number<std::int64_t>(text);
  if (!id || *id < 0 || *id > kMaxId)
    fail(Exit::corrupt, "{}: expected a token's number from 0 to {}, found \"{}\"", path.string(), kMaxId,
         shortened(text));
  return static_cast<std::uint32_t>(*id);
}

// Maps the names of classes that are aliases of another class (ElectraTokenizer), or behave like it, to that class.
std::string_view plain_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const std::string_view bert : {"DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
                                      "ConvBertTokenizer", "SqueezeBertTokenizer", "RetriBertTokenizer"})
    if (name == bert) return "BertTokenizer";
  for (const std::string_view roberta : {"BartTokenizer", "LongformerTokenizer", "LEDTokenizer"})
    if (name == roberta) return "RobertaTokenizer";
  if (name == "CodeGenTokenizer") return "GPT2Tokenizer";
  for (const std::string_view none : {"PreTrainedTokenizer", "TokenizersBackend", "PythonBackend"})
    if (name == none) return "";
  return name;
}

// The tokenizer class that transformers registers for a model type.
struct TypeClass {
  std::string_view type, name;
};
constexpr TypeClass kClasses[] = {
    {"bert", "BertTokenizer"},           {"distilbert", "BertTokenizer"},     {"electra", "BertTokenizer"},
    {"roberta", "RobertaTokenizer"},     {"camembert", "CamembertTokenizer"}, {"xlm-roberta", "XLMRobertaTokenizer"},
    {"gpt2", "GPT2Tokenizer"},           {"gpt_neo", "GPT2Tokenizer"},        {"gptj", "GPT2Tokenizer"},
    {"gpt_neox", "GPTNeoXTokenizer"},    {"qwen2", "Qwen2Tokenizer"},         {"qwen3", "Qwen2Tokenizer"},
    {"phobert", "PhobertTokenizer"},     {"bertweet", "BertweetTokenizer"},   {"gemma", "GemmaTokenizer"},
    {"openai-gpt", "OpenAIGPTTokenizer"}};

std::string_view class_of_type(std::string_view type) {
  for (const TypeClass& entry : kClasses)
    if (entry.type == type) return entry.name;
  return "";
}

// The model_type in config.json. If there is none, the type of the class that `architectures` names: "bert" for
// BertForMaskedLM.
std::string type_of(const Value* model) {
  std::string type = text_or(model, "model_type", "");
  const Value* architectures = model ? model->find("architectures") : nullptr;
  if (!type.empty() || !architectures || !architectures->is(Kind::list)) return type;
  const auto plain = [](std::string_view name) {  // ignores case and separators
    std::string out;
    for (const char c : name)
      if (c != '-' && c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
  };
  static constexpr std::string_view kSuffixes[] = {"For", "LMHead", "Model", "DoubleHeads"};
  static constexpr std::string_view kWithoutClass[] = {"modernbert", "mistral", "llama"};
  for (const Value& one : architectures->items()) {
    if (!one.is(Kind::text)) continue;
    const std::string name = one.text();
    const auto begins_name = [&](std::string_view candidate) {
      return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) {
        return plain(name).starts_with(plain(candidate) + plain(suffix));
      });
    };
    for (const TypeClass& entry : kClasses)
      if (begins_name(entry.type)) return std::string(entry.type);
    for (const std::string_view candidate : kWithoutClass)
      if (begins_name(candidate)) return std::string(candidate);
  }
  return type;
}

std::string class_of(const Value* config, const Value* model, const std::string& type) {
  std::string given = text_or(config, "tokenizer_class", "");
  if (given.empty()) given = text_or(model, "tokenizer_class", "");
  const std::string_view registered = class_of_type(type);
  // Published folders of these types name a wrong class.
  if (type == "modernbert" || type == "mistral" || type == "ministral" || type == "mixtral") return "";
  if (type == "qwen2" || given.empty()) return std::string(registered);
  return std::string(plain_class(given));
}

void take_token(FolderSettings& out, const std::string& key, const Value& value, bool special) {
  const auto same = [&](const auto& one) { return one.first == key; };
  if (value.is(Kind::none)) {
    std::erase_if(out.named, same);
    out.nameless.push_back(key);
    return;
  }
  const auto token = token_of(value, special);
  if (!token || token->content.empty()) return;
  const auto there = std::find_if(out.named.begin(), out.named.end(), same);
  if (there != out.named.end())
    there->second = *token;
  else
    out.named.emplace_back(key, *token);
  std::erase(out.nameless, key);
}

void take_extra(FolderSettings& out, const Value& value) {
  if (value.is(Kind::dict))
    for (const auto& [key, token] : value.pairs()) take_token(out, key.text(), token, true);
  if (!value.is(Kind::list)) return;
  out.extra.clear();
  for (const Value& one : value.items())
    if (const auto token = token_of(one, true); token && !token->content.empty()) out.extra.push_back(*token);
}

// Reads the tokens of tokenizer_config.json or special_tokens_map.json.
void take_tokens(FolderSettings& out, const Value& from) {
  for (const auto& [key, value] : from.pairs())
    if (key.text().ends_with("_token") && !value.is(Kind::boolean)) take_token(out, key.text(), value, true);
  const Value* extra = from.find("extra_special_tokens");
  const bool given = extra && (extra->is(Kind::dict) || extra->is(Kind::list)) &&
                     !(extra->is(Kind::dict) ? extra->pairs().empty() : extra->items().empty());
  if (const Value* older = from.find("additional_special_tokens"); older && !given) take_extra(out, *older);
  if (given) take_extra(out, *extra);
}

std::string class_token(const FolderSettings& settings, std::string_view key) {
  const std::string_view name = settings.tokenizer_class;
  const auto one_of = [&](std::initializer_list<std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  if (settings.is_bert()) {
    if (key == "unk_token") return "[UNK]";
    if (key == "sep_token") return "[SEP]";
    if (key == "pad_token") return "[PAD]";
    if (key == "cls_token") return "[CLS]";
    if (key == "mask_token") return "[MASK]";
    return "";
  }
  if (name == "RobertaTokenizer" || name == "XLMRobertaTokenizer" || name == "CamembertTokenizer") {
    if (one_of({"bos_token", "cls_token"})) return "<s>";
    if (one_of({"eos_token", "sep_token"})) return "</s>";
    if (one_of({"unk_token"})) return "<unk>";
    if (one_of({"pad_token"})) return "<pad>";
    if (one_of({"mask_token"})) return "<mask>";
  }
  if (settings.is_llama()) {
    if (key == "bos_token") return "<s>";
    if (key == "eos_token") return "</s>";
    if (key == "unk_token") return "<unk>";
  }
  if (settings.is_byte_level() && one_of({"unk_token", "eos_token"})) return "<|endoftext|>";
  if ((name == "GPT2Tokenizer" || name == "GPTNeoXTokenizer") && key == "bos_token") return "<|endoftext|>";
  return "";
}

}  // namespace

const AddedToken* FolderSettings::token(std::string_view key) const {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& one) { return one.first == key; });
  return found == named.end() ? nullptr : &found->second;
}

bool FolderSettings::is_null(std::string_view key) const {
  return std::find(nameless.begin(), nameless.end(), key) != nameless.end();
}

std::string FolderSettings::token_text(std::string_view key) const {
  if (const AddedToken* given = token(key)) return given->content;
  if (is_null(key)) return "";
  return class_token(*this, key);
}

bool FolderSettings::is_byte_level() const {
  for (const std::string_view name : {"GPT2Tokenizer", "RobertaTokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer"})
    if (tokenizer_class == name) return true;
  return false;
}

FolderSettings read_folder_settings(const fs::path& folder) {
  return settings_of(read_folder_files(folder));
}

FolderSettings settings_of(const FolderFiles& files) {
  FolderSettings out;
  const auto& [folder, config, map, added, model] = files;
  const Value* const of_model = model ? &*model : nullptr;
  out.model_type = type_of(of_model);
  out.tokenizer_class = class_of(config ? &*config : nullptr, of_model, out.model_type);
  const fs::path list_file = folder / "added_tokens.json";
  const Value* decoder = config ? config->find("added_tokens_decoder") : nullptr;
  out.has_decoder = decoder && decoder->is(Kind::dict);
  if (config) {
    take_tokens(out, *config);
    out.add_bos = flag(*config, "add_bos_token");
    out.add_eos = flag(*config, "add_eos_token");
    out.prefix_space = flag(*config, "add_prefix_space");
    out.legacy = flag(*config, "legacy");
    out.lowercase = flag(*config, "do_lower_case");
    out.strip_accents = flag(*config, "strip_accents");
    out.splits_chinese = flag(*config, "tokenize_chinese_chars");
    out.splits_special = flag(*config, "split_special_tokens").value_or(false);
    out.truncates_left = text_or(&*config, "truncation_side", "") == "left";
  }
  if (map && !out.has_decoder) take_tokens(out, *map);
  if (out.has_decoder) {
    const fs::path path = folder / "tokenizer_config.json";
    for (const auto& [id, value] : decoder->pairs()) {
      auto token = token_of(value, false);
      if (!token) fail(Exit::corrupt, "{}: added_tokens_decoder: expected tokens with a \"content\"", path.string());
      token->id = id_of_text(id.text(), path);
      if (!token->content.empty()) out.listed.push_back(*std::move(token));
    }
  } else if (added) {
    for (const auto& [text, id] : added->pairs()) {
      if (!id.is(Kind::integer))
        fail(Exit::corrupt, "{}: expected the number of \"{}\", found {}", list_file.string(), shortened(text.text()),
             kind_text(id));
      const auto is_it = [&content = text.text()](const AddedToken& token) { return token.content == content; };
      const bool special =
          std::any_of(out.extra.begin(), out.extra.end(), is_it) ||
          std::any_of(out.named.begin(), out.named.end(), [&](const auto& named) { return is_it(named.second); });
      out.listed.push_back({.id = id_of_text(id.to_text(), list_file),
                            .content = text.text(),
                            .special = special,
                            .normalized = !special});
    }
    std::erase_if(out.listed, [](const AddedToken& token) { return token.content.empty(); });
  }
  std::stable_sort(out.listed.begin(), out.listed.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  // The order in which transformers adds them.
  const auto rank = [](const auto& one) { return std::find(kNames.begin(), kNames.end(), one.first) - kNames.begin(); };
  std::stable_sort(out.named.begin(), out.named.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  // A name refers to the listed token with the same text, and takes its flags.
  for (auto& [key, token] : out.named)
    for (const AddedToken& listed : out.listed)
      if (listed.content == token.content) token = listed;
  out.is_given = config || map || !out.listed.empty() || !out.tokenizer_class.empty() || !out.model_type.empty();
  return out;
}

std::string save_command(const fs::path& folder) {
  return python_command(
      "from transformers import AutoTokenizer as T; T.from_pretrained(argv[1]).save_pretrained(argv[1])",
      {folder.empty() ? "." : folder.string()});
}

std::vector<AddedToken> with_added_tokens(std::vector<AddedToken> own, const FolderSettings& settings,
                                          const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of,
                                          std::uint32_t size, std::vector<std::string>& notes) {
  // The folder's flags replace those of the file. A token that is special in the file stays special unless the class
  // rebuilds all tokens.
  const bool rebuilds = settings.is_bert() || settings.is_byte_level();
  std::uint32_t next = size;
  for (AddedToken& token : own) {
    next = std::max(next, token.id + 1);
    for (const AddedToken& listed : settings.listed) {
      if (!settings.has_decoder || listed.content != token.content) continue;
      const AddedToken own_token = std::exchange(token, listed);
      token.id = own_token.id;
      token.special = listed.special || (own_token.special && !rebuilds);
    }
  }
  const auto add = [&](AddedToken token) {
    const auto there =
        std::find_if(own.begin(), own.end(), [&](const auto& one) { return one.content == token.content; });
    if (there != own.end()) {
      there->special = there->special || token.special;
      return;
    }
    const auto known = id_of(token.content);
    const std::uint32_t id = known ? *known : next;
    if (token.id != kNextId && token.id != id)
      notes.push_back(fmt::format("\"{}\" is the token {}, as in transformers, and not {}, as in {}", token.content, id,
                                  token.id, settings.has_decoder ? "added_tokens_decoder" : "added_tokens.json"));
    token.id = id;
    next = std::max(next, id + 1);
    own.push_back(std::move(token));
  };
  for (const AddedToken& token : settings.listed) add(token);
  const auto add_named = [&](const AddedToken& token) {
    AddedToken made = token;
    made.special = true;
    made.id = kNextId;
    add(std::move(made));
  };
  for (const std::string_view key : kNames) {
    if (const AddedToken* named = settings.token(key)) {
      add_named(*named);
    } else if (const std::string text = settings.token_text(key); rebuilds && !text.empty()) {
      // The class's default token. transformers adds it to a vocabulary that lacks it. Texts contain such a token only
      // by accident, and no model was trained on it, so its id stays unused here.
      const auto there = [&](const AddedToken& one) { return one.content == text; };
      if (id_of(text))
        add_named({.content = text});
      else if (std::none_of(own.begin(), own.end(), there))
        ++next;
    }
  }
  for (const auto& [key, token] : settings.named)
    if (std::find(kNames.begin(), kNames.end(), key) == kNames.end()) add_named(token);
  for (AddedToken token : settings.extra) {
    token.id = kNextId;
    add(token);
  }
  return own;
}

}  // namespace strata::text
