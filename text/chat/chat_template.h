#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/record.h"
#include "text/template/template.h"
#include "text/tokenizer.h"

namespace strata::text {

// A model's chat template, with the special tokens named in its tokenizer's folder. Immutable; copies share it.
class ChatTemplate {
 public:
  // Finds the template in the folder of `tokenizer`, a path as for load_tokenizer: chat_template.jinja with
  // additional_chat_templates/NAME.jinja, otherwise `chat_template` in tokenizer_config.json (one text, or several with
  // names). If there are several, "tool_use" is for conversations with tools, and "default" for all others. `wanted`
  // selects one by name, or names a file. Returns nullopt if there is no template. Throws Error{usage} for a template
  // that cannot be parsed, or that writes a special token of the folder's files that `known`, the tokenizer, does not
  // have.
  static std::optional<ChatTemplate> find(const std::filesystem::path& tokenizer,
                                          const std::optional<std::filesystem::path>& wanted, const Tokenizer& known);

  // The file, for messages.
  const std::string& name() const { return name_; }
  // The XXH3-64 of its texts, 16 hex digits. It identifies the template, wherever it is stored.
  std::string hash() const;
  // Whether the template chosen for `conversation` marks what an assistant writes.
  bool marks_answers(const Conversation& conversation) const { return of(conversation).has_generation(); }
  // Whether the template texts contain this name. A template cannot write a field that it does not name.
  bool names(std::string_view field) const;
  // The text of eos_token; empty if the folder does not name one.
  std::string_view end_token() const;
  // Whether the conversation has tools or tool calls, but the template reads no tools.
  bool leaves_out_tools(const Conversation& conversation) const;
  // A note for the user if the templates write text such as "<|user|>" that the tokenizer reads as plain text.
  std::vector<std::string> notes() const;
  // Renders the first `turns` turns of a conversation. Throws Error{usage} as jinja::Template::render does, and if no
  // template fits the conversation.
  jinja::Rendered render(const Conversation& conversation, std::size_t turns, bool add_generation_prompt) const;

 private:
  ChatTemplate() = default;
  const jinja::Template& of(const Conversation& conversation) const;
  void add(const std::string& source, const std::string& name, const std::vector<std::string>& promised,
           const Tokenizer& known);

  std::string name_, source_;
  std::vector<std::pair<std::string, std::shared_ptr<const jinja::Template>>> templates_;  // with names
  std::vector<std::pair<jinja::Value, jinja::Value>> special_tokens_;  // bos_token and so on, with their texts
  std::vector<std::string> plain_marks_;
  std::string tokenizer_;  // the tokenizer's name
};

}  // namespace strata::text
