#include "text/chat/unread.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/quantity.h"
#include "text/json/json_value.h"

namespace strata::text {
namespace {

using jinja::Kind;
using jinja::Value;

// A boolean, as JSON and tables write it.
bool is_flag(const Value& value) {
  if (value.is_number()) return value.real() == 0 || value.real() == 1;
  constexpr std::array<std::string_view, 8> kWords = {"true", "false", "True", "False", "TRUE", "FALSE", "0", "1"};
  return value.is(Kind::text) && std::find(kWords.begin(), kWords.end(), value.text()) != kWords.end();
}

}  // namespace

void count_unread(UnreadFields& out, std::string_view field) {
  const auto found = out.find(field);
  if (found != out.end())
    ++found->second;
  else
    out.emplace(field, 1);
}

std::string listed(const UnreadFields& fields, std::string_view counts) {
  constexpr std::size_t kShown = 12;
  std::vector<std::pair<std::string, std::uint64_t>> all(fields.begin(), fields.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), kShown); ++i)
    out += fmt::format("{}{} ({})", i > 0 ? ", " : "", all[i].first, counted(all[i].second, counts));
  if (all.size() > kShown) out += fmt::format(" and {} more", all.size() - kShown);
  return out;
}

std::vector<std::string_view> fields_read(const Value& record, DataFormat format, bool templated,
                                          std::string_view field) {
  std::vector<std::string_view> out;
  switch (format) {
    case DataFormat::text:
      return {field};
    case DataFormat::chat:
      if (const Value* messages = record.find("messages"); messages && !messages->is(Kind::none))
        out = {"messages"};
      else
        out = {"prompt", "completion"};
      break;
    case DataFormat::sharegpt:
      out = {"conversations", "system"};
      break;
    case DataFormat::alpaca:
      out = {"instruction", "input", "output", "system", "history"};
      break;
    case DataFormat::completion:
      out = {"prompt", "completion"};
      break;
  }
  if (templated) out.insert(out.end(), {"tools", "chat_template_kwargs", "documents"});
  return out;
}

void find_unread(const Value& record, std::span<const std::string_view> read, UnreadFields& out) {
  for (const auto& [key, value] : record.pairs())
    if (const std::string field = key.to_text();
        !says_nothing(value) && std::find(read.begin(), read.end(), field) == read.end())
      count_unread(out, field);
}

void refuse_preferences(const Value& record) {
  for (const auto& [key, value] : record.pairs()) {
    const std::string field = key.to_text();
    const bool of_pair =
        field == "chosen" || field == "rejected" || field.starts_with("chosen_") || field.starts_with("rejected_");
    if (of_pair && !says_nothing(value))
      throw RecordFault{
          fmt::format("\"{}\" is preference data, which is not supported: to train on the chosen answers, see "
                      "that they are in the fields that are read, and leave \"chosen\" and \"rejected\" out (jq -c "
                      "'del(.chosen, .rejected, .rejected_response)')",
                      field)};
    if ((field == "label" || field == "kto_tag") && is_flag(value))
      throw RecordFault{
          fmt::format("\"{0}\" says whether the answer is wanted (KTO), which is not supported: keep the records whose "
                      "answer is, without the field (jq -c 'select(.{0} == true or .{0} == 1) | del(.{0})')",
                      field)};
  }
}

}  // namespace strata::text
