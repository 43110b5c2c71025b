#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/record.h"
#include "text/tokenizer.h"

namespace strata::text {

// A conversation that continues: turns become tokens, and a model answers them. The tokenizer must outlive it.
class Dialogue {
 public:
  Dialogue(ChatTemplate made, const Tokenizer& tokenizer) : made_(std::move(made)), tokenizer_(&tokenizer) {}

  // Reads the turns of a JSON text: a list of messages, or a data set record that contains some. `name` is for
  // messages. Throws Error{corrupt} for anything else, and Error{usage} for several records, or if the last turn is an
  // assistant's.
  void read(std::string_view json, const std::string& name);
  // Sentences for the user about turns that the template leaves out.
  const std::vector<std::string>& notes() const { return notes_; }
  void ask(std::string text) { add("user", std::move(text)); }
  void answered(std::string text) { add("assistant", std::move(text)); }

  // The tokens of the conversation up to where the answer begins. Throws Error{usage} as the template does.
  std::vector<std::uint32_t> prompt() const;
  // The token with which the template ends an answer: a special token, or the only token that it writes after the
  // answer. Empty if answers end differently.
  std::vector<std::uint32_t> turn_ends() const;

 private:
  void add(std::string_view role, std::string content);
  void look_at_contents(const std::string& name);

  ChatTemplate made_;
  const Tokenizer* tokenizer_;
  std::vector<std::string> notes_;
  Conversation conversation_{.messages = jinja::Value::list({})};
};

}  // namespace strata::text
