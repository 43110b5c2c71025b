#include "text/chat/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/chat/written.h"

namespace strata::text {
namespace {

using jinja::Rendered;
using jinja::Stretch;

constexpr std::array<std::pair<std::string_view, TrainOn>, 4> kTrainOnNames = {{{"assistant", TrainOn::assistant},
                                                                                {"last", TrainOn::last},
                                                                                {"completion", TrainOn::completion},
                                                                                {"all", TrainOn::all}}};

// Which turns are trained on.
std::vector<bool> wanted_turns(const Conversation& conversation, TrainOn on) {
  const std::size_t turns = conversation.answers.size();
  const auto last = std::find(conversation.answers.rbegin(), conversation.answers.rend(), true);
  const auto last_answer = static_cast<std::size_t>(conversation.answers.rend() - last);  // numbered from 1; 0: none
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

// Finds the turns in the rendering of the whole conversation.
class Turns {
 public:
  Turns(const ChatTemplate& made, const Conversation& conversation, const Rendered& whole)
      : made_(made), conversation_(conversation), whole_(whole) {}

  // Renders the turns before it, and those up to and including it.
  Stretch by_prefixes(std::size_t turn) {
    const bool answer = conversation_.answers[turn];
    std::optional<std::size_t> begin = beginning(turn, answer), end = beginning(turn + 1, false);
    if (!begin && answer) begin = beginning(turn, false);
    if (!begin && turn > 0) begin = beginning_after(turn, answer);
    if (!end && (end = end_by_content(turn)) && answer) ++retold_;
    if (!begin || !end || *end < *begin)
      throw RecordFault{fmt::format(
          "turn {} cannot be located in the text: {} does not mark it with {{% generation %}}, and writes it or the "
          "turns before it differently when others follow; train on the last turn (--train-on last), or give a "
          "template that marks answers with --chat-template FILE",
          turn + 1, made_.name())};
    return {*begin, *end};
  }
  // The number of answers that by_prefixes found although the template writes them otherwise when they are the last
  // turn.
  std::size_t retold() const { return retold_; }
  // The stretches that {% generation %} marks in the turns `wanted`.
  std::vector<Stretch> by_marks(const std::vector<bool>& wanted) const {
    const auto& marks = whole_.generated;
    const auto& answers = conversation_.answers;
    const auto count = static_cast<std::size_t>(std::count(answers.begin(), answers.end(), true));
    const bool all = std::equal(wanted.begin(), wanted.end(), answers.begin());
    std::vector<Stretch> out;
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
  // The number of bytes of the first `turns` in the whole rendering, if their own rendering is its beginning.
  std::optional<std::size_t> beginning(std::size_t turns, bool add_generation_prompt) const {
    if (turns == conversation_.answers.size()) return whole_.text.size();
    try {
      const Rendered part = made_.render(conversation_, turns, add_generation_prompt);
      if (whole_.text.starts_with(part.text)) return part.text.size();
    } catch (const Error&) {  // a template that accepts a conversation need not accept every part of it
    }
    return std::nullopt;
  }
  // The end of a turn that the template writes differently when it is the last (Qwen3 puts an empty thought before its
  // text). What follows a turn's text stays: it is what the turns up to this one end with.
  std::optional<std::size_t> end_by_content(std::size_t turn) const {
    const auto after = bytes_after_content(turn, conversation_.answers.size(), whole_.text);
    if (!after) return std::nullopt;
    try {
      const std::string alone = made_.render(conversation_, turn + 1, false).text;
      const auto ending = bytes_after_content(turn, turn + 1, alone);
      if (!ending || *ending > *after) return std::nullopt;
      const std::size_t at = whole_.text.size() - *after;
      const std::string_view last = std::string_view(alone).substr(alone.size() - *ending);
      return std::string_view(whole_.text).substr(at).starts_with(last) ? std::optional(at + *ending) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // The end of the turn before, with the prompt for an answer if the text goes on with it.
  std::optional<std::size_t> beginning_after(std::size_t turn, bool answer) const {
    const auto begin = end_by_content(turn - 1);
    if (!begin || !answer) return begin;
    try {
      const std::string before = made_.render(conversation_, turn, false).text;
      const std::string asked = made_.render(conversation_, turn, true).text;
      if (!asked.starts_with(before)) return begin;
      const std::string_view prompt = std::string_view(asked).substr(before.size());
      return std::string_view(whole_.text).substr(*begin).starts_with(prompt) ? *begin + prompt.size() : *begin;
    } catch (const Error&) {
      return begin;
    }
  }
  // The number of bytes that follow the text of `turn` in `rendered`, which is the rendering of the first `turns`:
  // those that stay if the turn has another text. Nullopt if the template does not write the text.
  std::optional<std::size_t> bytes_after_content(std::size_t turn, std::size_t turns,
                                                 const std::string& rendered) const {
    try {
      const std::string other =
          made_.render(with_content(conversation_, turn, jinja::Value(std::string(kOtherText))), turns, false).text;
      const std::size_t most = std::min(other.size(), rendered.size());
      std::size_t same = 0;
      while (same < most && other[other.size() - 1 - same] == rendered[rendered.size() - 1 - same]) ++same;
      return other == rendered ? std::nullopt : std::optional(same);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // The number of marks in the first `turns`.
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
  std::size_t retold_ = 0;
};

// In order, without empty ones; adjoining ones are joined.
std::vector<Stretch> joined(std::vector<Stretch> stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> out;
  for (const Stretch& one : stretches) {
    if (one.begin >= one.end) continue;
    if (!out.empty() && one.begin <= out.back().end)
      out.back().end = std::max(out.back().end, one.end);
    else
      out.push_back(one);
  }
  return out;
}

std::vector<Stretch> complement(const std::vector<Stretch>& stretches, std::size_t size) {
  std::vector<Stretch> out;
  std::size_t at = 0;
  for (const Stretch& one : stretches) {
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
  std::vector<Stretch> labels;
  if (on == TrainOn::all) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (!wanted[i]) labels.push_back(turns.by_prefixes(i));
    labels = complement(joined(std::move(labels)), whole.text.size());
  } else {
    const bool marked = made.marks_answers(conversation) && !whole.lost;
    // No template marks turns other than an assistant's.
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (wanted[i] && (!marked || !conversation.answers[i])) labels.push_back(turns.by_prefixes(i));
    if (marked) {
      for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = wanted[i] && conversation.answers[i];
      const auto marks = turns.by_marks(wanted);
      labels.insert(labels.end(), marks.begin(), marks.end());
    }
    labels = joined(std::move(labels));
  }
  return {std::move(whole.text), std::move(labels), turns.retold()};
}

}  // namespace strata::text
