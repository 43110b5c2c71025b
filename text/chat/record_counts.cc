#include "text/chat/record_counts.h"

#include <fmt/format.h>

#include "base/counted.h"

namespace strata::text {

void RecordCounts::add(const RecordCounts& more) {
  unlabelled += more.unlabelled;
  tools_left_out += more.tools_left_out;
  decoded_calls += more.decoded_calls;
  null_arguments += more.null_arguments;
  retold += more.retold;
  for (const auto& [field, records] : more.unread) unread[field] += records;
  for (const auto& [field, records] : more.unread_in_turns) unread_in_turns[field] += records;
  for (const auto& [role, turns] : more.roles_left_out) roles_left_out[role] += turns;
  roles.insert(more.roles.begin(), more.roles.end());
}

std::vector<std::string> RecordCounts::remarks(const std::string& made, std::uint64_t documents) const {
  std::vector<std::string> out;
  const auto some = [&](std::uint64_t n) {
    return fmt::format("{} of {} {}", n, counted(documents, "document"), for_count(n, "has", "have"));
  };
  if (!unread.empty()) out.push_back(fmt::format("fields that are not read: {}", listed(unread)));
  if (!unread_in_turns.empty())
    out.push_back(fmt::format("fields of turns that {} does not write: {}", made, listed(unread_in_turns)));
  if (!roles_left_out.empty())
    out.push_back(fmt::format("roles whose turns {} does not write: {}", made, listed(roles_left_out, "turn")));
  if (tools_left_out > 0)
    out.push_back(
        fmt::format("{} tools or calls of them, which {} does not write, so that an answer may be empty: "
                    "--chat-template takes one that does",
                    some(tools_left_out), made));
  if (decoded_calls > 0)
    out.push_back(
        fmt::format("{} tool calls whose arguments are JSON in a text, which {} would write as JSON in JSON: the "
                    "objects in these texts are written",
                    some(decoded_calls), made));
  if (null_arguments > 0)
    out.push_back(
        fmt::format("{} null arguments in tool calls, which are written: if the file was a table, where each call has "
                    "the arguments of every tool, remove them with jq -c 'del(.. | nulls)'",
                    some(null_arguments)));
  if (retold > 0)
    out.push_back(
        fmt::format("{} {} trained on as {} writes {} before other turns, which differs from how it writes a last "
                    "turn (by thoughts, for example): --train-on last leaves {} out",
                    counted(retold, "answer"), for_count(retold, "is", "are"), made, for_count(retold, "it", "them"),
                    for_count(retold, "it", "them")));
  return out;
}

}  // namespace strata::text
