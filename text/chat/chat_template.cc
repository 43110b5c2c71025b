#include "text/chat/chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "text/folder/folder_files.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;

std::string read(const fs::path& path) {
  return std::string(text_of(MappedFile(path)));
}

// Finds "<|...|>" in a template: text that looks like a special token.
std::vector<std::string> tokens_in(std::string_view source) {
  constexpr std::size_t kMost = 64;
  std::vector<std::string> out;
  for (std::size_t at = source.find("<|"); at != std::string_view::npos; at = source.find("<|", at + 2)) {
    const std::size_t end = source.find("|>", at + 2);
    if (end == std::string_view::npos) break;
    const std::string_view name = source.substr(at + 2, end - at - 2);
    if (name.empty() || name.size() > kMost || name.find_first_of(" \n\t'\"<>{}|+~") != std::string_view::npos)
      continue;
    std::string token(source.substr(at, end + 2 - at));
    if (std::find(out.begin(), out.end(), token) == out.end()) out.push_back(std::move(token));
  }
  return out;
}

bool is_word(char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool mentions(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

// Collects the texts that the folder's files declare as special tokens.
void add_special(const Value& from, std::vector<std::string>& out) {
  const auto add = [&](const Value& token) {
    const Value* content = token.is(Kind::dict) ? token.find("content") : &token;
    if (content && content->is(Kind::text) && !content->text().empty()) out.push_back(content->text());
  };
  for (const auto& [key, value] : from.pairs()) {
    if (key.text().ends_with("_token")) add(value);
    if (key.text() == "added_tokens_decoder" && value.is(Kind::dict))
      for (const auto& [id, token] : value.pairs())
        if (const Value* special = token.is(Kind::dict) ? token.find("special") : nullptr;
            special && special->is(Kind::boolean) && special->boolean())
          add(token);
    if (key.text() != "additional_special_tokens" && key.text() != "extra_special_tokens") continue;
    if (value.is(Kind::list))
      for (const Value& token : value.items()) add(token);
    if (value.is(Kind::dict))
      for (const auto& [name, token] : value.pairs()) add(token);
  }
}

// The templates of a folder, as transformers finds them.
struct Sources {
  std::vector<std::pair<std::string, std::string>> all;  // name and template
  bool by_name = false;  // whether to choose by name; otherwise the single template is for all conversations
  std::string where;
};

Sources sources_in(const fs::path& folder, const Value& config) {
  Sources out;
  std::error_code ignored;
  const auto set = [&](const std::string& name, std::string source) {
    std::erase_if(out.all, [&](const auto& one) { return one.first == name; });
    out.all.emplace_back(name, std::move(source));
  };
  const fs::path file = folder / "chat_template.jinja", more = folder / "additional_chat_templates";
  if (fs::is_regular_file(file, ignored)) set("default", read(file));
  std::vector<fs::path> others;
  for (fs::directory_iterator at(more, ignored), end; at != end; at.increment(ignored))
    if (at->path().extension() == ".jinja" && at->is_regular_file(ignored)) others.push_back(at->path());
  std::sort(others.begin(), others.end());
  for (const fs::path& other : others) set(other.stem().string(), read(other));
  if (!out.all.empty()) {
    out.by_name = out.all.size() > 1 || out.all.front().first != "default";
    out.where = (others.empty() || out.all.front().first == "default" ? file : more).string();
    return out;
  }
  const Value* found = config.find("chat_template");
  if (!found || found->is(Kind::none)) return out;
  out.where = fmt::format("chat_template of {}", (folder / "tokenizer_config.json").string());
  if (found->is(Kind::text)) {
    set("default", found->text());
    return out;
  }
  out.by_name = true;
  if (found->is(Kind::dict))
    for (const auto& [name, source] : found->pairs())
      if (source.is(Kind::text)) set(name.text(), source.text());
  if (!found->is(Kind::list) && !found->is(Kind::dict))
    fail(Exit::corrupt, "{}: expected a string or a list, found {}", out.where, kind_text(*found));
  for (const Value& one : found->is(Kind::list) ? found->items() : std::vector<Value>()) {
    const Value *name = one.is(Kind::dict) ? one.find("name") : nullptr,
                *source = name ? one.find("template") : nullptr;
    if (!source || !source->is(Kind::text) || !name->is(Kind::text))
      fail(Exit::corrupt, "{}: expected objects with a name and a template", out.where);
    set(name->text(), source->text());
  }
  if (out.all.empty()) fail(Exit::corrupt, "{}: expected at least one template, found none", out.where);
  return out;
}

std::string names_of(const Sources& sources) {
  std::vector<std::string> names;
  for (const auto& [name, source] : sources.all) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& tokenizer, const std::optional<fs::path>& wanted,
                                               const Tokenizer& known) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(tokenizer, ignored);
  const fs::path folder = is_folder ? tokenizer : tokenizer.parent_path();
  const bool has_folder = is_folder || fs::is_regular_file(tokenizer, ignored);
  ChatTemplate out;
  const FolderFiles files = has_folder ? read_folder_files(folder) : FolderFiles{};
  const Value config = files.config.value_or(Value::dict({})), map = files.map.value_or(Value::dict({}));
  std::vector<std::pair<Value, Value>> tokens;
  // The defaults of the transformers class that reads this kind of file.
  for (auto& [name, token] : known.named_tokens()) tokens.emplace_back(Value(name), Value(token));
  const auto take = [&](const Value& from) {
    for (const auto& [key, value] : from.pairs()) {
      if (!key.text().ends_with("_token")) continue;
      const Value* content = value.is(Kind::dict) ? value.find("content") : &value;
      if (content && content->is(Kind::text)) tokens.emplace_back(key, *content);
      if (value.is(Kind::none))
        std::erase_if(tokens, [&](const auto& named) { return named.first.text() == key.text(); });
    }
  };
  if (const Value* extra = config.find("extra_special_tokens"); extra && extra->is(Kind::dict)) take(*extra);
  take(config);
  // transformers does not read the map if the configuration lists the tokens.
  if (!config.find("added_tokens_decoder")) take(map);
  if (!tokens.empty()) out.special_tokens_ = Value::dict(std::move(tokens)).pairs();
  std::vector<std::string> promised;
  for (const Value* from : {&config, &map}) add_special(*from, promised);

  const Sources found = has_folder ? sources_in(folder, config) : Sources{};
  const auto named = [&](std::string_view name) {
    return std::find_if(found.all.begin(), found.all.end(), [&](const auto& one) { return one.first == name; });
  };
  if (wanted && found.by_name && named(wanted->string()) != found.all.end()) {
    out.name_ = fmt::format("{} ({})", found.where, wanted->string());
    out.add(named(wanted->string())->second, "default", promised, known);
    return out;
  }
  if (wanted) {
    if (!fs::is_regular_file(*wanted, ignored))
      fail(Exit::usage,
           "--chat-template {}: there is neither such a file nor such a template in the tokenizer's folder: {}",
           wanted->string(),
           found.by_name       ? fmt::format("{} has {}", found.where, names_of(found))
           : found.all.empty() ? fmt::format("{} has none; give a FILE (names of other programs, such as chatml, are "
                                             "not built in)",
                                             tokenizer.string())
                               : fmt::format("{} is its only template, and is used without this option", found.where));
    out.name_ = wanted->string();
    out.add(read(*wanted), "default", promised, known);
    return out;
  }
  if (found.all.empty()) return std::nullopt;
  out.name_ = found.where;
  for (const char* name : {"default", "tool_use"})
    if (const auto one = named(name); one != found.all.end()) out.add(one->second, name, promised, known);
  if (out.templates_.empty())
    fail(Exit::usage, "{} has {}, but no template named default: choose one with --chat-template NAME", out.name_,
         names_of(found));
  return out;
}

void ChatTemplate::add(const std::string& source, const std::string& name, const std::vector<std::string>& promised,
                       const Tokenizer& known) {
  templates_.emplace_back(name, std::make_shared<const jinja::Template>(source, name_));
  source_ += fmt::format("{}\n{}\n", name, source);
  tokenizer_ = known.name();
  if (known.name() == "byte") return;  // the byte tokenizer has no special tokens, so it encodes their bytes
  for (const auto& [key, token] : special_tokens_)
    if (mentions(source, key.text()) && !token.text().empty() && !known.id_of(token.text()))
      fail(Exit::usage,
           "{} writes {}, which is \"{}\", but the tokenizer {} has no such token: use the template and "
           "tokenizer of one model",
           name_, key.text(), token.text(), known.name());
  for (const std::string& token : promised)
    if (source.find(token) != std::string::npos && !known.id_of(token))
      fail(Exit::usage,
           "{} writes {}, which the tokenizer's folder lists as a special token, but the tokenizer {} has no such "
           "token: use the template and tokenizer of one model",
           name_, token, known.name());
  for (std::string& token : tokens_in(source))
    if (!known.id_of(token) && std::find(plain_marks_.begin(), plain_marks_.end(), token) == plain_marks_.end())
      plain_marks_.push_back(std::move(token));
}

std::vector<std::string> ChatTemplate::notes() const {
  if (plain_marks_.empty()) return {};
  return {fmt::format("{} writes {}, which {} of the tokenizer {}: read as plain text", name_,
                      fmt::join(plain_marks_, ", "), plain_marks_.size() == 1 ? "is not a token" : "are not tokens",
                      tokenizer_)};
}

std::string ChatTemplate::hash() const {
  return fmt::format("{:016x}", XXH3_64bits(source_.data(), source_.size()));
}

const jinja::Template& ChatTemplate::of(const Conversation& conversation) const {
  const bool tools = !conversation.tools.is(Kind::none);
  for (const char* wanted : {"tool_use", "default"}) {
    if (!tools && std::string_view(wanted) == "tool_use") continue;
    for (const auto& [name, made] : templates_)
      if (name == wanted) return *made;
  }
  fail(Exit::usage,
       "{} has a template only for conversations with tools (tool_use), but none named default: choose one with "
       "--chat-template NAME",
       name_);
}

bool ChatTemplate::names(std::string_view field) const {
  return mentions(source_, field);
}

std::string_view ChatTemplate::end_token() const {
  const auto found = std::find_if(special_tokens_.begin(), special_tokens_.end(),
                                  [](const auto& named) { return named.first.text() == "eos_token"; });
  return found == special_tokens_.end() ? std::string_view() : std::string_view(found->second.text());
}

bool ChatTemplate::leaves_out_tools(const Conversation& conversation) const {
  const auto& turns = conversation.messages.items();
  const bool calls = std::any_of(turns.begin(), turns.end(), [](const Value& message) {
    const Value* made = message.find("tool_calls");
    return made && !made->is(Kind::none);
  });
  return (!conversation.tools.is(Kind::none) && !mentions(source_, "tools")) ||
         (calls && !mentions(source_, "tool_calls"));
}

jinja::Rendered ChatTemplate::render(const Conversation& conversation, std::size_t turns,
                                     bool add_generation_prompt) const {
  const auto& all = conversation.messages.items();
  const auto key = [](const char* name) { return Value(std::string(name)); };
  std::vector<std::pair<Value, Value>> variables = special_tokens_;
  variables.emplace_back(key("tools"), conversation.tools);
  variables.emplace_back(key("documents"), Value());
  for (const auto& variable : conversation.more) variables.push_back(variable);
  variables.emplace_back(key("messages"), Value::list({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(turns)}));
  variables.emplace_back(key("add_generation_prompt"), Value(add_generation_prompt));
  return of(conversation).render(Value::dict(std::move(variables)));
}

}  // namespace strata::text
