#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/record.h"
#include "text/template/rendered.h"
#include "text/tokenizer.h"

namespace strata::text {

// The part of a document that is trained on.
enum class TrainOn {
  assistant,   // every turn of the assistant
  last,        // the assistant's last turn
  completion,  // the text after the prompt; in a chat that names no prompt, the last answer
  all,         // everything
};
std::optional<TrainOn> train_on(std::string_view name);
std::string_view name_of(TrainOn on);

// A document's text, and the spans of it that count as labels, in order and disjoint.
struct LabelledText {
  std::string text;
  std::vector<jinja::TextSpan> labels;
  std::size_t written_differently = 0;  // answers that the template writes differently when they are the last turn
  bool open_end = false;  // whether the text ends with an answer that is trained on and that no token ends
};

// Renders a conversation with its template. The spans of a turn are those that {% generation %} marks. If the template
// has no marks, they follow from two renderings: one with the turns before this one (with add_generation_prompt, if
// that is a prefix of the whole text), and one that includes this turn. If the template writes this turn or the one
// before it differently when it is the last, the span begins with the turn's text, after its prompt, and ends with what
// follows the text in such a rendering. A turn's `train` and `weight` take precedence over `on`. Throws RecordFault if
// neither way finds the turn, and Error{usage} as the template does.
LabelledText labelled_text(const ChatTemplate& made, const Conversation& conversation, TrainOn on);

// Finds the tokens of a text that lie in its labels, for any tokenizer: by the text of each token or, if the tokenizer
// changes the text, by tokenizing its prefixes. One per thread.
class TokenAligner {
 public:
  // `workspace` is the thread's workspace for `tokenizer`; both outlive this.
  TokenAligner(const Tokenizer& tokenizer, Tokenizer::Workspace& workspace);

  // Decides for each of `ids`, the tokens of `text`, whether it covers a byte of `labels` (in order and disjoint), as
  // transformers' char_to_token does. False if that cannot be determined.
  bool mark(std::string_view text, std::span<const std::uint32_t> ids, std::span<const jinja::TextSpan> labels,
            std::vector<std::uint8_t>& counts);

 private:
  const std::string& surface(std::uint32_t id);
  std::string surface_of(std::span<const std::uint32_t> ids) const;
  // Finds the bytes of each token; false if a token does not occur in the text.
  bool align(std::string_view text, std::span<const std::uint32_t> ids);
  // The number of tokens in the first `bytes` bytes of the text.
  std::optional<std::size_t> tokens_before(std::string_view text, std::size_t bytes,
                                           std::span<const std::uint32_t> ids);

  const Tokenizer& tokenizer_;
  Tokenizer::Workspace& workspace_;
  std::vector<std::uint32_t> anchor_;  // precedes a token that is decoded, so that the token is not the first
  std::string anchor_text_;
  std::vector<std::optional<std::string>> surfaces_;  // indexed by id
  std::vector<jinja::TextSpan> places_;
  std::vector<std::uint32_t> beginning_;
};

}  // namespace strata::text
