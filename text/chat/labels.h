#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/record.h"

namespace strata::text {

// Which part of a document is trained on.
enum class TrainOn {
  assistant,   // every turn of the assistant
  last,        // the assistant's last turn
  completion,  // what follows the prompt; in a chat that names no prompt, the last answer
  all,         // everything
};
std::optional<TrainOn> train_on(std::string_view name);
std::string_view name_of(TrainOn on);

// A document's text, and the stretches of it that count as labels, in order and disjoint.
struct LabelledText {
  std::string text;
  std::vector<jinja::Stretch> labels;
  std::size_t retold = 0;  // answers that the template writes otherwise when they are the last turn
};

// Renders a conversation with its template. The stretches of a turn are those that {% generation %} marks. If the
// template marks nothing, they follow from two renderings: with the turns before this one (with add_generation_prompt,
// if that is a beginning of the whole), and with this one added; if the template writes this one otherwise when it is
// the last, its end is what follows its text there. A turn's `train` and `weight` take precedence over `on`. Throws
// RecordFault if neither way finds the turn, and Error{usage} as the template does.
LabelledText labelled_text(const ChatTemplate& made, const Conversation& conversation, TrainOn on);

}  // namespace strata::text
