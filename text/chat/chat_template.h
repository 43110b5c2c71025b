#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/chat/record.h"
#include "text/template/template.h"
#include "text/tokenizer.h"

namespace strata::text {

// A model's chat template, with the special tokens that its tokenizer's folder names. Immutable; copies share it.
class ChatTemplate {
 public:
  // `file`; else chat_template.jinja, else `chat_template` of tokenizer_config.json (a text, or a list of named ones,
  // of which "default" and, for a conversation with tools, "tool_use" count) in the folder of `tokenizer`, which is
  // what load_tokenizer takes. Nullopt if there is none. Throws Error{usage} for a template that cannot be parsed,
  // or whose special tokens `known`, the tokenizer, does not have.
  static std::optional<ChatTemplate> find(const std::filesystem::path& tokenizer,
                                          const std::optional<std::filesystem::path>& file, const Tokenizer& known);

  // For messages: the file.
  const std::string& name() const { return name_; }
  // XXH3-64 of its texts, 16 hex digits: which template it is, wherever it lies.
  std::string hash() const;
  // Whether the template that is taken for `conversation` marks what an assistant writes.
  bool marks_answers(const Conversation& conversation) const { return of(conversation).has_generation(); }
  // Whether it has tools, or calls of them, and the template reads none.
  bool leaves_out_tools(const Conversation& conversation) const;
  // The first `turns` of a conversation as text. Throws Error{usage} as jinja::Template::render does, and if the
  // text holds a token of the template that the tokenizer does not have.
  jinja::Rendered render(const Conversation& conversation, std::size_t turns, bool add_generation_prompt) const;

 private:
  ChatTemplate() = default;
  const jinja::Template& of(const Conversation& conversation) const;
  void add(const std::string& source, const std::string& name, const Tokenizer& known);

  std::string name_, tokenizer_, source_;
  std::vector<std::pair<std::string, std::shared_ptr<const jinja::Template>>> templates_;  // by name: default, tool_use
  std::vector<std::pair<jinja::Value, jinja::Value>> special_tokens_;  // bos_token and so on, their texts
  std::vector<std::string> unknown_;                                   // <|...|> of the template that are no tokens
};

}  // namespace strata::text
