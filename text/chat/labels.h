#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/record.h"

namespace strata::text {

// What of a document counts as a label.
enum class TrainOn {
  assistant,   // every turn of the assistant
  last,        // its last turn
  completion,  // what follows the prompt; of a chat that names none, its last answer
  all,         // everything
};
std::optional<TrainOn> train_on(std::string_view name);
std::string_view name_of(TrainOn on);

// A document's text, and the stretches of it that count as labels: in order, apart from each other.
struct LabelledText {
  std::string text;
  std::vector<jinja::Stretch> labels;
};

// A conversation by its template. Which stretches a turn has is what {% generation %} marks; if the template marks
// nothing, what rendering the turns before it (with add_generation_prompt, if that is a beginning of the whole) and
// with it gives. `train` and `weight` of a turn go before `on`. Throws RecordFault if neither says where a turn
// lies, and Error{usage} as the template does.
LabelledText labelled_text(const ChatTemplate& made, const Conversation& conversation, TrainOn on);

}  // namespace strata::text
