#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/record.h"
#include "text/template/values/value.h"

namespace strata::text {

// Fields that have content but are not read, and the number of records with each.
using UnreadFields = std::map<std::string, std::uint64_t, std::less<>>;
// Counts one more record with the field.
void count_unread(UnreadFields& out, std::string_view field);
// The list as shown to the user: "context (3 records), id (1 record)".
std::string listed(const UnreadFields& fields, std::string_view counts = "record");

// The fields of a record that are read: `field` for text, otherwise the format's fields, which depend on whether a
// template writes the record.
std::vector<std::string_view> fields_read(const jinja::Value& record, DataFormat format, bool templated,
                                          std::string_view field);
// Counts the fields of the record that are not in `read`.
void find_unread(const jinja::Value& record, std::span<const std::string_view> read, UnreadFields& out);

// Throws RecordFault if the record contains preferences, that is, a field for answers that are not wanted: pairs of
// answers (`chosen`, `rejected`, ms-swift's `rejected_response`), or KTO's `label` for one answer.
void refuse_preferences(const jinja::Value& record);

// Returns the conversation with the content of one turn replaced.
Conversation with_content(const Conversation& conversation, std::size_t turn, const jinja::Value& content);
// A text that occurs in no turn, and that templates do not treat as white space.
inline constexpr std::string_view kOtherText = "\x02";

// Determines which turns' contents a template writes, by rendering with other text in their place. Tests each kind of
// turn until the answer is certain. One per thread.
class WrittenContents {
 public:
  explicit WrittenContents(const ChatTemplate& made) : made_(made) {}

  // Adds the roles of turns whose text the template leaves out. `whole` is the text of the conversation. Throws
  // RecordFault if a content is a list and the template writes Python's representation of it, or nothing although it
  // writes the text of such a turn.
  void find_left_out(const Conversation& conversation, std::string_view whole, UnreadFields& roles);

 private:
  // Whether the text changes when the turn's content is `other`.
  bool writes(const Conversation& conversation, std::size_t turn, std::string_view whole,
              const jinja::Value& other) const;
  bool writes_parts(const Conversation& conversation, std::size_t turn, std::string_view whole) const;

  const ChatTemplate& made_;
  // For each role, place, whether the content is a list, and whether the turn has calls: how often the content was
  // written, and how often it was not.
  std::map<std::tuple<std::string, int, bool, bool>, std::pair<int, int>> asked_;
};

// In OpenAI's API, the arguments of a call are a JSON text. If the template would encode that text as JSON again, or
// refuses it and accepts objects, returns the conversation with the texts replaced by the objects; otherwise nullopt.
// Throws RecordFault if such an object names a field twice, or contains a number that is out of range.
std::optional<Conversation> with_decoded_arguments(const ChatTemplate& made, const Conversation& conversation);

// Whether a call has a null argument. Tables write all fields of all records, so each call has every tool's arguments.
bool has_null_arguments(const Conversation& conversation);

}  // namespace strata::text
