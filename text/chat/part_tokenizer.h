#pragma once
// text/chat/ turns data set records into tokens: the formats of records (record.h), their text as a model's template
// writes it (chat_template.h), and the parts of the text that are trained on, with their tokens (labels.h). dialogue.h
// is for conversations that continue. Open next: labels.h.
namespace simdjson::dom {
class parser;
}

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
#include "text/chat/template_coverage.h"
#include "text/documents.h"
#include "text/tokenizer.h"

namespace strata::text {

// Facts about the records that the user should know. The counts are of conversations unless stated otherwise.
struct RecordCounts {
  std::uint64_t unlabelled = 0;           // documents without labels
  std::uint64_t tools_left_out = 0;       // documents with tools that the template does not write
  std::uint64_t decoded_calls = 0;        // documents whose tool calls had arguments in JSON texts, which were decoded
  std::uint64_t null_arguments = 0;       // documents with null arguments in tool calls
  std::uint64_t written_differently = 0;  // answers that the template writes differently when they are the last turn
  std::uint64_t open_ends = 0;            // conversations whose last answer has no token that ends it
  UnreadFields unread;                    // fields of records that are not read; unused if --field is given
  UnreadFields unread_in_turns;           // fields of turns that the template does not name
  UnreadFields roles_left_out;            // roles of turns whose text the template does not write
  std::set<std::string> roles;            // the roles of turns; if there are many, only some of them

  void add(const RecordCounts& more);
  // Sentences for the user about all counts except `unlabelled`. `made`: the template's name.
  std::vector<std::string> notes(const std::string& made, std::uint64_t documents) const;
};

// How each record is tokenized.
struct RecordRules {
  DataFormat format = DataFormat::text;
  bool found = false;                  // the format was inferred from the first record, so a second format is refused
  bool field_given = false;            // --field names the field to read, and the others are ignored
  std::string field = "text";          // the field of text records
  bool add_special = false;            // put the tokenizer's template around each text
  const ChatTemplate* made = nullptr;  // the template for conversations; with one, Alpaca's records are conversations
  TrainOn train_on = TrainOn::all;
  // Train a conversation of prompt and completion on the completion only, whatever train_on is (TRL's
  // completion_only_loss).
  bool completion_alone = false;
  std::optional<std::uint32_t> end;  // the token after each completion, itself a label
  // Whether a template renders the records.
  bool templated() const {
    return format == DataFormat::chat || format == DataFormat::sharegpt || (format == DataFormat::alpaca && made);
  }
};

// The tokens of a part, and the start of each of its documents.
struct PartTokens {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> counts;  // whether each token is a label; empty: all are
  std::vector<std::size_t> begins;
  RecordCounts seen;
};

// Turns parts into tokens; one per thread. Throws Error with "NAME, line N: what is wrong".
class PartTokenizer {
 public:
  PartTokenizer(const Tokenizer& tokenizer, const RecordRules& rules);
  ~PartTokenizer();

  void run(const DocumentPart& part, PartTokens& out);

 private:
  void records(const DocumentPart& part, PartTokens& out);
  void record(const jinja::Value& record, const RecordLocation& place, PartTokens& out);
  void text(std::string_view text, PartTokens& out);
  void labelled(const LabelledText& document, const RecordLocation& place, PartTokens& out);
  std::string_view field_of(const RecordLocation& place, UnreadFields& unread);
  std::string_view slow_field_of(const RecordLocation& place, UnreadFields& unread);
  void refuse_two_formats(const jinja::Value& record, const RecordLocation& place);
  void find_unread_in_turns(const Conversation& conversation, UnreadFields& out);

  const Tokenizer& tokenizer_;
  const RecordRules& rules_;
  std::unique_ptr<Tokenizer::Workspace> workspace_;
  TokenAligner places_;
  std::optional<WrittenContents> written_;     // empty without a template
  std::vector<std::uint32_t> before_, after_;  // what the tokenizer's template puts around a text
  std::unique_ptr<simdjson::dom::parser> parser_;
  std::vector<std::string_view> names_;             // the field names of the current line
  jinja::Value record_;                             // the current line, if simdjson cannot read its numbers
  std::vector<std::string> read_;                   // the fields whose numbers matter
  std::map<std::string, bool, std::less<>> named_;  // for each field of turns, whether the template names it
};

}  // namespace strata::text
