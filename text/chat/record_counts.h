#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "text/chat/unread.h"

namespace strata::text {

// What was seen in records that a user should know about. Counts are of conversations, unless they say otherwise.
struct RecordCounts {
  std::uint64_t unlabelled = 0;      // documents without labels
  std::uint64_t tools_left_out = 0;  // with tools that the template does not write
  std::uint64_t decoded_calls = 0;   // with arguments of calls as JSON texts, which were decoded
  std::uint64_t null_arguments = 0;  // with arguments of calls that are null
  std::uint64_t retold = 0;          // answers that the template writes otherwise when they are the last turn
  UnreadFields unread;               // fields of records that are not read; unused if --field is given
  UnreadFields unread_in_turns;      // fields of turns that the template does not name
  UnreadFields roles_left_out;       // roles of turns whose text the template does not write
  std::set<std::string> roles;       // the roles of turns; only some of them if there are many

  void add(const RecordCounts& more);
  // Sentences for the user about all of them but `unlabelled`. `made`: the template's name.
  std::vector<std::string> remarks(const std::string& made, std::uint64_t documents) const;
};

}  // namespace strata::text
