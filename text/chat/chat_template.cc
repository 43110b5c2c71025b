#include "text/chat/chat_template.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "text/chat/json_value.h"

namespace strata::text {
namespace {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;
constexpr std::size_t kMaxBytes = std::size_t{1} << 28;

std::string read(const fs::path& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kMaxBytes)
    fail(Exit::corrupt, "{}: expected a file of at most 256 MiB, found {} bytes", path.string(), file.bytes().size());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A JSON object; an empty one if there is no such file.
Value read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return Value::dict({});
  try {
    Value out = parse_json(read(path));
    if (!out.is(Kind::dict)) fail(Exit::corrupt, "{}: expected a JSON object, found {}", path.string(), kind_text(out));
    return out;
  } catch (const JsonFault& fault) {
    fail(Exit::corrupt, "{}, offset {}: {}", path.string(), fault.at, fault.message);
  }
}

// "<|...|>" in a template: what looks like a special token.
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
bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& tokenizer, const std::optional<fs::path>& file,
                                               const Tokenizer& known) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(tokenizer, ignored);
  const fs::path folder = is_folder ? tokenizer : tokenizer.parent_path();
  const bool has_folder = is_folder || fs::is_regular_file(tokenizer, ignored);
  ChatTemplate out;
  out.tokenizer_ = known.name();
  const Value config = has_folder ? read_object(folder / "tokenizer_config.json") : Value::dict({});
  const Value map = has_folder ? read_object(folder / "special_tokens_map.json") : Value::dict({});
  std::vector<std::pair<Value, Value>> tokens;
  // As the classes of transformers that read such a file have them if nothing else is said.
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
  take(map);
  if (const Value* extra = config.find("extra_special_tokens"); extra && extra->is(Kind::dict)) take(*extra);
  take(config);
  if (!tokens.empty()) out.special_tokens_ = Value::dict(std::move(tokens)).pairs();
  if (file || (has_folder && fs::is_regular_file(folder / "chat_template.jinja", ignored))) {
    const fs::path path = file ? *file : folder / "chat_template.jinja";
    if (!fs::is_regular_file(path, ignored))
      fail(Exit::usage, "--chat-template {}: there is no such file", path.string());
    out.name_ = path.string();
    out.add(read(path), "default", known);
    return out;
  }
  const Value* found = config.find("chat_template");
  if (!found || found->is(Kind::none)) return std::nullopt;
  out.name_ = fmt::format("chat_template of {}", (folder / "tokenizer_config.json").string());
  if (found->is(Kind::text)) {
    out.add(found->text(), "default", known);
  } else {
    if (!found->is(Kind::list))
      fail(Exit::corrupt, "{}: expected a text or a list, found {}", out.name_, kind_text(*found));
    for (const Value& one : found->items()) {
      const Value *name = one.is(Kind::dict) ? one.find("name") : nullptr,
                  *source = name ? one.find("template") : nullptr;
      if (!source || !source->is(Kind::text) || !name->is(Kind::text))
        fail(Exit::corrupt, "{}: expected objects with a name and a template", out.name_);
      if (name->text() == "default" || name->text() == "tool_use") out.add(source->text(), name->text(), known);
    }
  }
  const auto is_default = [](const auto& one) { return one.first == "default"; };
  if (std::none_of(out.templates_.begin(), out.templates_.end(), is_default))
    fail(Exit::usage, "{} has no template named default: give one with --chat-template FILE", out.name_);
  return out;
}

void ChatTemplate::add(const std::string& source, const std::string& name, const Tokenizer& known) {
  templates_.emplace_back(name, std::make_shared<const jinja::Template>(source, name_));
  source_ += fmt::format("{}\n{}\n", name, source);
  if (known.name() == "byte") return;  // which has no special tokens at all, and takes their bytes
  for (const auto& [key, token] : special_tokens_)
    if (has_word(source, key.text()) && !token.text().empty() && !known.id_of(token.text()))
      fail(Exit::usage,
           "{} writes {}, which is \"{}\", but the tokenizer {} has no such token: take template and "
           "tokenizer of one model",
           name_, key.text(), token.text(), known.name());
  for (std::string& token : tokens_in(source))
    if (!known.id_of(token)) unknown_.push_back(std::move(token));
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
  return *templates_.front().second;
}

bool ChatTemplate::leaves_out_tools(const Conversation& conversation) const {
  const auto& turns = conversation.messages.items();
  const bool calls = std::any_of(turns.begin(), turns.end(), [](const Value& message) {
    const Value* made = message.find("tool_calls");
    return made && !made->is(Kind::none);
  });
  return (!conversation.tools.is(Kind::none) && !has_word(source_, "tools")) ||
         (calls && !has_word(source_, "tool_calls"));
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
  jinja::Rendered out = of(conversation).render(Value::dict(std::move(variables)));
  for (const std::string& token : unknown_)
    if (out.text.find(token) != std::string::npos)
      fail(Exit::usage,
           "{} writes {}, but the tokenizer {} has no such token: take template and tokenizer of one model", name_,
           token, tokenizer_);
  return out;
}

}  // namespace strata::text
