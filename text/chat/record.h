#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/template/values/value.h"

namespace strata::text {

// The format of a data set record.
enum class DataFormat {
  text,        // {"text": ...}
  chat,        // {"messages": [{"role": ..., "content": ...}, ...]}, or prompt and completion as lists of messages
  alpaca,      // {"instruction": ..., "input": ..., "output": ..., "system": ...}
  sharegpt,    // {"conversations": [{"from": ..., "value": ...}, ...]}
  completion,  // {"prompt": ..., "completion": ...}
};
std::string_view name_of(DataFormat format);
std::optional<DataFormat> data_format(std::string_view name);

// The turns of a chat, for a template.
struct Conversation {
  jinja::Value messages;                                    // a list of dicts, each of which has a role
  jinja::Value tools;                                       // a list, or none
  std::vector<std::pair<jinja::Value, jinja::Value>> more;  // further variables: chat_template_kwargs, documents
  std::vector<bool> answers;                                // which turns are the assistant's
  std::vector<std::optional<bool>>
      trained;             // for each turn, its flag for training on it (`train`, `weight` and others), if it has one
  std::size_t prompt = 0;  // the number of turns in the prompt; 0: unknown
  // Field names of turns, each listed once: those that the template sees (except role and content), and those of
  // ShareGPT's turns that it does not see.
  std::vector<std::string> turn_fields = {}, unread_turn_fields = {};
};

// A prompt and its completion.
struct Completion {
  std::string prompt, answer;
};

// The format, according to the fields of `record`, a dict. Throws RecordFault if the fields belong to two formats or to
// none. The message says what to rename, or `to_do` if that is not empty.
DataFormat format_of(const jinja::Value& record, std::string_view to_do = {});
// Throws RecordFault if the fields belong to two formats.
void refuse_formats_of_two(const jinja::Value& record);

// Converts records of the formats chat, alpaca, sharegpt and completion to turns. Drops null fields of turns, as
// transformers does. Throws RecordFault.
Conversation conversation_of(const jinja::Value& record, DataFormat format);
// Converts records of the formats completion and alpaca without a template. Alpaca has its own prompt (Taori et al.
// 2023); `system` replaces the first sentence of that prompt.
Completion completion_of(const jinja::Value& record, DataFormat format);
// Parses JSON that a field stores as a text. Throws JsonFault as for a line of JSON: for repeated fields and for an
// UnrepresentableNumber.
jinja::Value exact_json(std::string_view text);
// The text in the field `field` of a record.
const std::string& text_field(const jinja::Value& record, std::string_view field);

// A fault in a data set record; the caller adds the place.
struct RecordFault {
  std::string message;
  Exit code = Exit::corrupt;
};

// Whether a field is a flag for training on its turn, under the name of any trainer: `train` in axolotl, `loss` in
// ms-swift, `weight` in OpenAI's and other formats. Templates see none of these fields.
bool is_turn_mask(std::string_view field);

// Whether the turn is trained on; nullopt if it has no flag. A flag is true or false, 1 or 0. turn: its number from 1,
// for messages. Throws RecordFault for other values, for flags that contradict each other, and for masks of parts of a
// turn (`train_detail`).
std::optional<bool> trained(const jinja::Value& message, std::size_t turn);

}  // namespace strata::text
