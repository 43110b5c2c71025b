#pragma once
// text/chat/ makes tokens of data sets' records: what a record is (record.h), what a model's template writes of it
// (chat_template.h), which of that is learned (labels.h), and which tokens that are (token_places.h). dialogue.h is for
// conversations that go on. Open next: labels.h.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/labels.h"
#include "text/chat/part_records.h"
#include "text/chat/record.h"
#include "text/chat/token_places.h"
#include "text/chat/unread.h"
#include "text/documents.h"
#include "text/tokenizer.h"

namespace simdjson::dom {
class parser;
}

namespace strata::text {

// What is made of each record.
struct RecordRules {
  DataFormat format = DataFormat::text;
  bool found = false;                  // the first record said so: one of two formats is refused
  bool field_given = false;            // --field says which field is read: others are not looked at
  std::string field = "text";          // of text
  bool add_special = false;            // with the tokenizer's template around each text
  const ChatTemplate* made = nullptr;  // of conversations; Alpaca's records are conversations if there is one
  TrainOn train_on = TrainOn::all;
  // A conversation of prompt and completion is trained on the completion alone, whatever train_on says (TRL's
  // completion_only_loss).
  bool completion_alone = false;
  std::optional<std::uint32_t> end;  // token behind each completion, which counts as a label
  // Whether a record is a template's text.
  bool templated() const {
    return format == DataFormat::chat || format == DataFormat::sharegpt || (format == DataFormat::alpaca && made);
  }
};

// Tokens of a part, and where documents begin in them.
struct PartTokens {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> counts;  // whether each counts as a label; empty: all do
  std::vector<std::size_t> begins;
  std::uint64_t unlabelled = 0;      // documents in which none counts
  std::uint64_t tools_left_out = 0;  // conversations with tools of which the template writes nothing
  UnreadFields unread;               // of records, unless --field says which is read
  UnreadFields unread_in_turns;      // of turns, as the template does not name them
  std::set<std::string> roles;       // of conversations' turns, some of them if there are many
};

// Turns parts into tokens; one for each thread. Throws Error: NAME, line N: what is wrong.
class PartTokenizer {
 public:
  PartTokenizer(const Tokenizer& tokenizer, const RecordRules& rules);
  ~PartTokenizer();

  void run(const DocumentPart& part, PartTokens& out);

 private:
  void records(const DocumentPart& part, PartTokens& out);
  void record(const jinja::Value& record, const RecordPlace& place, PartTokens& out);
  void text(std::string_view text, PartTokens& out);
  void labelled(const LabelledText& document, const RecordPlace& place, PartTokens& out);
  std::string_view field_of(const RecordPlace& place, UnreadFields& unread);
  std::string_view slow_field_of(const RecordPlace& place, UnreadFields& unread);
  void refuse_two_formats(const jinja::Value& record, const RecordPlace& place);
  void find_unread_in_turns(const Conversation& conversation, UnreadFields& out);

  const Tokenizer& tokenizer_;
  const RecordRules& rules_;
  std::unique_ptr<Tokenizer::Workspace> workspace_;
  TokenPlaces places_;
  std::vector<std::uint32_t> before_, behind_;  // what the tokenizer's template puts around a text
  std::unique_ptr<simdjson::dom::parser> parser_;
  std::vector<std::string_view> names_;             // of the fields of the line in hand
  jinja::Value record_;                             // it, if simdjson does not read its numbers
  std::vector<std::string> read_;                   // fields of which numbers count
  std::map<std::string, bool, std::less<>> named_;  // fields of turns: whether the template names them
};

}  // namespace strata::text
