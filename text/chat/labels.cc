#include "text/chat/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "text/chat/template_coverage.h"
#include "text/template/values/python_text.h"

namespace strata::text {

namespace {

using jinja::Rendered;
using jinja::TextSpan;

constexpr std::array<std::pair<std::string_view, TrainOn>, 4> kTrainOnNames = {{{"assistant", TrainOn::assistant},
                                                                                {"last", TrainOn::last},
                                                                                {"completion", TrainOn::completion},
                                                                                {"all", TrainOn::all}}};

// Which turns are trained on.
std::vector<bool> wanted_turns(const Conversation& conversation, TrainOn on) {
  const std::size_t turns = conversation.answers.size();
  const auto last = std::find(conversation.answers.rbegin(), conversation.answers.rend(), true);
  const auto last_answer = static_cast<std::size_t>(conversation.answers.rend() - last);  // counted from 1; 0: none
  std::vector<bool> out(turns);
  for (std::size_t i = 0; i < turns; ++i) {
    const bool answer = conversation.answers[i], is_last = i + 1 == last_answer;
    const bool after_prompt = conversation.prompt > 0 ? answer && i >= conversation.prompt : is_last;
    out[i] = on == TrainOn::all         ? true
             : on == TrainOn::assistant ? answer
             : on == TrainOn::last      ? is_last
                                        : after_prompt;
    if (conversation.trained[i]) out[i] = *conversation.trained[i];
  }
  return out;
}

// Finds the place of each turn in the rendering of the whole conversation.
class Turns {
 public:
  Turns(const ChatTemplate& made, const Conversation& conversation, const Rendered& whole)
      : made_(made), conversation_(conversation), whole_(whole) {}

  // Finds a turn from the rendering of the turns before it and the one that includes it. Call it for turns in order.
  TextSpan by_prefixes(std::size_t turn) {
    const bool answer = conversation_.answers[turn];
    std::erase_if(prefixes_, [&](const auto& known) { return known.first.first < turn; });
    std::erase_if(changed_, [&](const auto& known) { return known.first.first + 1 < turn; });
    std::optional<std::size_t> begin = beginning(turn, answer), end = beginning(turn + 1, false);
    if (!begin && answer) begin = begin_by_content(turn);
    if (!begin && answer)
      if (const auto at = beginning(turn, false)) begin = after_prompt(turn, *at);
    if (!begin && turn > 0)
      if (const auto at = end_of(turn - 1)) begin = answer ? after_prompt(turn, *at) : *at;
    if (!end) {
      end = end_of(turn);
      if (end && answer && end_by_content(turn)) ++written_differently_;
    }
    if (!begin || !end || *end < *begin)
      throw RecordFault{fmt::format(
          "turn {} cannot be located in the text: {} does not mark it with {{% generation %}}, and writes it or the "
          "turns before it differently when others follow; train on the last turn (--train-on last), or give a "
          "template that marks answers with --chat-template FILE",
          turn + 1, made_.name())};
    return {*begin, *end};
  }
  // The number of answers found by by_prefixes() that the template writes differently when they are the last turn.
  std::size_t written_differently() const { return written_differently_; }
  // The spans that {% generation %} marks in the turns for which `wanted` is true.
  std::vector<TextSpan> by_marks(const std::vector<bool>& wanted) const {
    const auto& marks = whole_.generated;
    const auto& answers = conversation_.answers;
    const auto count = static_cast<std::size_t>(std::count(answers.begin(), answers.end(), true));
    const bool all = std::equal(wanted.begin(), wanted.end(), answers.begin());
    std::vector<TextSpan> out;
    std::size_t mark = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i]) continue;
      const std::size_t end = all || marks.size() == count ? mark + 1 : marks_before(i + 1);
      for (; mark < std::min(end, marks.size()); ++mark)
        if (wanted[i]) out.push_back(marks[mark]);
    }
    if (all) out = marks;
    if (out.empty() && std::find(wanted.begin(), wanted.end(), true) != wanted.end())
      throw RecordFault{fmt::format("{} marks none of its answers with {{% generation %}}", made_.name())};
    return out;
  }

 private:
  // The text of the first `turns` turns; nullptr if the template refuses them.
  const std::string* prefix(std::size_t turns, bool add_generation_prompt) {
    if (turns == conversation_.answers.size() && !add_generation_prompt) return &whole_.text;
    return rendered_once(prefixes_, {turns, add_generation_prompt},
                         [&] { return made_.render(conversation_, turns, add_generation_prompt).text; });
  }
  // Like prefix() without the prompt, but `turn` has another text.
  const std::string* changed(std::size_t turn, std::size_t turns) {
    return rendered_once(changed_, {turn, turns}, [&] {
      return made_.render(with_content(conversation_, turn, jinja::Value(std::string(kOtherText))), turns, false).text;
    });
  }
  template <typename Texts, typename Render>
  const std::string* rendered_once(Texts& texts, const typename Texts::key_type& key, const Render& render) {
    auto known = texts.find(key);
    if (known == texts.end()) {
      std::optional<std::string> text;
      try {
        text = render();
      } catch (const Error&) {  // a template that accepts a conversation need not accept every part of it
      }
      known = texts.emplace(key, std::move(text)).first;
    }
    return known->second ? &*known->second : nullptr;
  }
  // The length of the rendering of the first `turns` turns, if it is a prefix of the whole rendering.
  std::optional<std::size_t> beginning(std::size_t turns, bool add_generation_prompt) {
    if (turns == conversation_.answers.size()) return whole_.text.size();
    const std::string* part = prefix(turns, add_generation_prompt);
    return part && whole_.text.starts_with(*part) ? std::optional(part->size()) : std::nullopt;
  }
  // The end of a turn if the rendering of the turns up to it is not a prefix of the whole text.
  std::optional<std::size_t> end_of(std::size_t turn) {
    const auto end = end_by_content(turn);
    return end ? end : end_without_token(turn);
  }
  // The end of a turn that is followed by an end-of-text token when it is the last (Phi-3 writes one after all turns).
  std::optional<std::size_t> end_without_token(std::size_t turn) {
    const std::string* part = prefix(turn + 1, false);
    const std::string_view token = made_.end_token();
    if (!part || token.empty() || !part->ends_with(token)) return std::nullopt;
    const std::string_view turns = std::string_view(*part).substr(0, part->size() - token.size());
    return whole_.text.starts_with(turns) ? std::optional(turns.size()) : std::nullopt;
  }
  // The end of a turn that the template writes differently when it is the last (Qwen3 puts an empty thought before its
  // text). The rendering that ends with this turn shows what the template writes after the turn's text. The same
  // follows it in the whole rendering, except for white space (which Qwen3.5 puts between a text and calls).
  std::optional<std::size_t> end_by_content(std::size_t turn) {
    const std::size_t turns = conversation_.answers.size();
    const auto after = bytes_after_content(turn, turns), ending = bytes_after_content(turn, turn + 1);
    if (!after || !ending) return std::nullopt;
    const std::string& alone = *prefix(turn + 1, false);
    const std::string_view last = std::string_view(alone).substr(alone.size() - *ending);
    const std::string_view rest = std::string_view(whole_.text).substr(whole_.text.size() - *after);
    if (rest.starts_with(last)) return whole_.text.size() - rest.size() + last.size();
    const std::string_view last_word = jinja::strip(last, jinja::Side::left);
    const std::string_view rest_word = jinja::strip(rest, jinja::Side::left);
    if (last_word.empty() || !rest_word.starts_with(last_word)) return std::nullopt;
    return whole_.text.size() - rest_word.size() + last_word.size();
  }
  // The generation prompt for this turn; empty if there is none, or if it changes how the earlier turns are written.
  std::string_view prompt_for(std::size_t turn) {
    const std::string *before = prefix(turn, false), *asked = prefix(turn, true);
    return before && asked && asked->starts_with(*before) ? std::string_view(*asked).substr(before->size())
                                                          : std::string_view();
  }
  // Where the answer begins in the turn that begins at `at`: after the prompt for it. If the text continues differently
  // from the prompt (without the thought that the prompt begins), after the part that both have in common, but not
  // inside the answer's text.
  std::size_t after_prompt(std::size_t turn, std::size_t at) {
    const std::string_view prompt = prompt_for(turn), rest = std::string_view(whole_.text).substr(at);
    const std::size_t same = common_beginning(prompt, rest);
    if (same == prompt.size()) return at + same;
    if (jinja::strip(rest.substr(0, same), jinja::Side::both).empty()) return at;
    const auto text = content_begin(turn);
    return text && *text >= at ? std::min(at + same, *text) : at;
  }
  // Where the text of the turn begins, if it follows the prompt for an answer.
  std::optional<std::size_t> begin_by_content(std::size_t turn) {
    // Some templates refuse a conversation without turns.
    const bool none = turn == 0 && !prefix(turn, false) && !prefix(turn, true);
    const std::string_view prompt = prompt_for(none ? conversation_.answers.size() : turn);
    const auto text = jinja::strip(prompt, jinja::Side::both).empty() ? std::nullopt : content_begin(turn);
    return text && std::string_view(whole_.text).substr(0, *text).ends_with(prompt) ? text : std::nullopt;
  }
  // The number of bytes before the text of the turn, which stay the same if the turn has another text. Nullopt if the
  // template does not write the text.
  std::optional<std::size_t> content_begin(std::size_t turn) {
    const std::string* other = changed(turn, conversation_.answers.size());
    return other && *other != whole_.text ? std::optional(common_beginning(*other, whole_.text)) : std::nullopt;
  }
  // The number of bytes after the text of the turn in the rendering of the first `turns` turns. Nullopt as above.
  std::optional<std::size_t> bytes_after_content(std::size_t turn, std::size_t turns) {
    const std::string *rendered = prefix(turns, false), *other = rendered ? changed(turn, turns) : nullptr;
    if (!other || *other == *rendered) return std::nullopt;
    const auto first = std::mismatch(rendered->rbegin(), rendered->rend(), other->rbegin(), other->rend()).first;
    return static_cast<std::size_t>(first - rendered->rbegin());
  }
  static std::size_t common_beginning(std::string_view a, std::string_view b) {
    return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }
  // The number of marks in the first `turns` turns.
  std::size_t marks_before(std::size_t turns) const {
    std::optional<std::size_t> out;
    if (turns == conversation_.answers.size()) return whole_.generated.size();
    try {
      out = made_.render(conversation_, turns, false).generated.size();
    } catch (const Error&) {
    }
    if (!out || *out > whole_.generated.size())
      throw RecordFault{
          fmt::format("it is unclear which {{% generation %}} of {} belongs to which turn: train on all "
                      "answers (--train-on assistant)",
                      made_.name())};
    return *out;
  }

  const ChatTemplate& made_;
  const Conversation& conversation_;
  const Rendered& whole_;
  std::size_t written_differently_ = 0;
  // Keys: the number of turns, and whether a prompt is added; the turn with another text, and the number of turns.
  std::map<std::pair<std::size_t, bool>, std::optional<std::string>> prefixes_;
  std::map<std::pair<std::size_t, std::size_t>, std::optional<std::string>> changed_;
};

// Sorts the spans, drops empty ones, and joins adjoining ones.
std::vector<TextSpan> joined(std::vector<TextSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](const TextSpan& a, const TextSpan& b) { return a.begin < b.begin; });
  std::vector<TextSpan> out;
  for (const TextSpan& one : spans) {
    if (one.begin >= one.end) continue;
    if (!out.empty() && one.begin <= out.back().end)
      out.back().end = std::max(out.back().end, one.end);
    else
      out.push_back(one);
  }
  return out;
}

// Whether the last turn is an answer and nothing follows its text in the rendering.
bool ends_openly(const Conversation& conversation, std::string_view rendered) {
  const jinja::Value* content =
      conversation.answers.back() ? conversation.messages.items().back().find("content") : nullptr;
  if (!content || !content->is(jinja::Kind::text)) return false;
  const std::string_view text = jinja::strip(content->text(), jinja::Side::right);
  return !text.empty() && rendered.ends_with(text);
}

std::vector<TextSpan> complement(const std::vector<TextSpan>& spans, std::size_t size) {
  std::vector<TextSpan> out;
  std::size_t at = 0;
  for (const TextSpan& one : spans) {
    out.push_back({at, one.begin});
    at = one.end;
  }
  out.push_back({at, size});
  return joined(std::move(out));
}

}  // namespace

std::optional<TrainOn> train_on(std::string_view name) {
  for (const auto& [known, on] : kTrainOnNames)
    if (known == name) return on;
  return std::nullopt;
}
std::string_view name_of(TrainOn on) {
  return std::find_if(kTrainOnNames.begin(), kTrainOnNames.end(), [&](const auto& known) { return known.second == on; })
      ->first;
}

LabelledText labelled_text(const ChatTemplate& made, const Conversation& conversation, TrainOn on) {
  Rendered whole = made.render(conversation, conversation.answers.size(), false);
  Turns turns(made, conversation, whole);
  std::vector<bool> wanted = wanted_turns(conversation, on);
  std::vector<TextSpan> labels;
  if (on == TrainOn::all) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (!wanted[i]) labels.push_back(turns.by_prefixes(i));
    labels = complement(joined(std::move(labels)), whole.text.size());
  } else {
    const bool marked = made.marks_answers(conversation) && !whole.lost;
    // Templates mark only the assistant's turns.
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i] && (!marked || !conversation.answers[i])) labels.push_back(turns.by_prefixes(i));
    if (marked) {
      for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = wanted[i] && conversation.answers[i];
      const auto marks = turns.by_marks(wanted);
      labels.insert(labels.end(), marks.begin(), marks.end());
    }
    labels = joined(std::move(labels));
  }
  const bool open_end =
      ends_openly(conversation, whole.text) && !labels.empty() && labels.back().end == whole.text.size();
  return {std::move(whole.text), std::move(labels), turns.written_differently(), open_end};
}

namespace {

using jinja::TextSpan;
constexpr std::size_t kMaxCharacterTokens = 8;  // the most tokens that one character, with its neighbours, may take

// The place in the text after `surface`, which begins at `at`. The surface may have or lack the space that a tokenizer
// puts before a word, and may follow white space that the tokenizer drops. npos if it does not occur at this place.
std::size_t end_of(std::string_view text, std::size_t at, std::string_view surface) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(surface)) return at + surface.size();
  if (surface.starts_with(' ') && rest.starts_with(surface.substr(1))) return at + surface.size() - 1;
  const std::size_t space = rest.size() - jinja::strip(rest, jinja::Side::left).size();
  if (space == 0) return std::string_view::npos;
  const std::string_view word = surface.starts_with(' ') ? surface.substr(1) : surface;
  if (word.empty() || !rest.substr(space).starts_with(word)) return std::string_view::npos;
  return at + space + word.size();
}

}  // namespace

TokenAligner::TokenAligner(const Tokenizer& tokenizer, Tokenizer::Workspace& workspace)
    : tokenizer_(tokenizer), workspace_(workspace), anchor_(tokenizer.encode("a")), surfaces_(tokenizer.vocab_size()) {
  anchor_text_ = tokenizer_.decode(anchor_, false);
}

std::string TokenAligner::surface_of(std::span<const std::uint32_t> ids) const {
  std::vector<std::uint32_t> all = anchor_;
  all.insert(all.end(), ids.begin(), ids.end());
  std::string text = tokenizer_.decode(all, false);
  return text.starts_with(anchor_text_) ? text.substr(anchor_text_.size()) : tokenizer_.decode(ids, false);
}

const std::string& TokenAligner::surface(std::uint32_t id) {
  auto& known = surfaces_[id];
  if (!known) known = surface_of({&id, 1});
  return *known;
}

bool TokenAligner::align(std::string_view text, std::span<const std::uint32_t> ids) {
  places_.clear();
  std::size_t at = 0;
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t count = 1, next = end_of(text, at, surface(ids[i]));
    // The bytes of one character may be spread over several tokens.
    while (next == std::string_view::npos && count < kMaxCharacterTokens && i + count < ids.size())
      next = end_of(text, at, surface_of(ids.subspan(i, ++count)));
    if (next == std::string_view::npos) return false;
    places_.insert(places_.end(), count, {at, next});
    at = next;
    i += count;
  }
  return jinja::strip(text.substr(at), jinja::Side::left).empty();
}

std::optional<std::size_t> TokenAligner::tokens_before(std::string_view text, std::size_t bytes,
                                                       std::span<const std::uint32_t> ids) {
  beginning_.clear();
  tokenizer_.encode(text.substr(0, bytes), false, workspace_, beginning_);
  const bool is = beginning_.size() <= ids.size() && std::equal(beginning_.begin(), beginning_.end(), ids.begin());
  return is ? std::optional(beginning_.size()) : std::nullopt;
}

bool TokenAligner::mark(std::string_view text, std::span<const std::uint32_t> ids, std::span<const TextSpan> labels,
                        std::vector<std::uint8_t>& counts) {
  counts.assign(ids.size(), 0);
  if (labels.empty()) return true;
  if (labels.size() == 1 && labels[0] == TextSpan{0, text.size()}) {
    counts.assign(ids.size(), 1);
    return true;
  }
  if (align(text, ids)) {
    std::size_t label = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto [begin, end] = places_[i];
      while (label < labels.size() && labels[label].end <= begin) ++label;
      counts[i] = label < labels.size() && end > labels[label].begin ? 1 : 0;
    }
    return true;
  }
  for (const TextSpan& label : labels) {
    const auto begin = tokens_before(text, label.begin, ids), end = tokens_before(text, label.end, ids);
    if (!begin || !end) return false;
    std::fill(counts.begin() + static_cast<std::ptrdiff_t>(*begin), counts.begin() + static_cast<std::ptrdiff_t>(*end),
              1);
  }
  return true;
}

}  // namespace strata::text
