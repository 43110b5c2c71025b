#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/chat/chat_template.h"
#include "text/chat/record.h"
#include "text/chat/unread.h"

namespace strata::text {

// The conversation with another content of one turn.
Conversation with_content(const Conversation& conversation, std::size_t turn, const jinja::Value& content);
// A text that no turn has, and that templates do not take for white space.
inline constexpr std::string_view kOtherText = "\x02";

// Finds out which contents of turns a template writes, by rendering with another text in their place. It asks for each
// role and place until it knows; one per thread.
class WrittenContents {
 public:
  explicit WrittenContents(const ChatTemplate& made) : made_(made) {}

  // Adds the roles of turns whose text the template leaves out. Throws RecordFault if a content is a list, and the
  // template writes nothing of it, or Python's text of it.
  void find_left_out(const Conversation& conversation, UnreadFields& roles);

 private:
  bool writes(const Conversation& conversation, std::size_t turn);
  void require_parts_written(const Conversation& conversation, std::size_t turn);

  const ChatTemplate& made_;
  std::map<std::pair<std::string, int>, int> written_;  // role and place, and how often its text was written
};

// OpenAI's API has the arguments of a call as a JSON text, and most templates write what they are given as JSON, which
// would be JSON in JSON. Then the conversation with the values that the texts hold; otherwise nullopt.
std::optional<Conversation> with_decoded_arguments(const ChatTemplate& made, const Conversation& conversation);

// Whether a call has an argument that is null. Tables write all fields of all records, so that each call has the
// arguments of every tool.
bool has_null_arguments(const Conversation& conversation);

}  // namespace strata::text
