#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/record_fault.h"
#include "text/template/values/value.h"

namespace strata::text {

// What a line of a data set holds.
enum class DataFormat {
  text,        // {"text": ...}
  chat,        // {"messages": [{"role": ..., "content": ...}, ...]}, or prompt and completion as lists of messages
  alpaca,      // {"instruction": ..., "input": ..., "output": ..., "system": ...}
  sharegpt,    // {"conversations": [{"from": ..., "value": ...}, ...]}
  completion,  // {"prompt": ..., "completion": ...}
};
std::string_view name_of(DataFormat format);
std::optional<DataFormat> data_format(std::string_view name);

// Turns of a chat, for a template.
struct Conversation {
  jinja::Value messages;                                    // list of dicts with a role
  jinja::Value tools;                                       // list, or none
  std::vector<std::pair<jinja::Value, jinja::Value>> more;  // further variables: chat_template_kwargs, documents
  std::vector<bool> answers;                                // which turns are an assistant's
  std::vector<std::optional<bool>> trained;                 // what `train`, `weight` and others of a turn say
  std::size_t prompt = 0;                                   // turns that are a prompt; 0: nothing says so
  // Fields of turns, each once: those that go to the template (but role and content), and those of ShareGPT's turns
  // that do not.
  std::vector<std::string> turn_fields = {}, unread_turn_fields = {};
};

// A text to go on from, and how it goes on.
struct Completion {
  std::string prompt, answer;
};

// By the fields of `record`, a dict. Throws RecordFault if there are those of two formats, or of none: it says what to
// rename, else `to_do`, if that is not empty.
DataFormat format_of(const jinja::Value& record, std::string_view to_do = {});
// Throws RecordFault if the fields are those of two formats.
void refuse_formats_of_two(const jinja::Value& record);

// Records of chat, alpaca, sharegpt and completion as turns, without the fields of a turn that are null, as
// transformers has them; throw RecordFault.
Conversation conversation_of(const jinja::Value& record, DataFormat format);
// Records of completion and alpaca without a template: Alpaca's own prompt (Taori et al. 2023), in which `system`
// stands in place of the sentence at its beginning.
Completion completion_of(const jinja::Value& record, DataFormat format);
// The string `field` of a record.
const std::string& text_field(const jinja::Value& record, std::string_view field);

}  // namespace strata::text
