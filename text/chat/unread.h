#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/record.h"
#include "text/template/values/value.h"

namespace strata::text {

// Fields that have content but are not read, and the number of records with each.
using UnreadFields = std::map<std::string, std::uint64_t, std::less<>>;
// Counts one more record with the field.
void count_unread(UnreadFields& out, std::string_view field);
// The list for the user: "context (3 records), id (1 record)".
std::string listed(const UnreadFields& fields, std::string_view counts = "record");

// The fields of a record that are read: `field` for text; otherwise those of its format, which depend on whether a
// template writes it.
std::vector<std::string_view> fields_read(const jinja::Value& record, DataFormat format, bool templated,
                                          std::string_view field);
// Adds the fields of the record that are not in `read`.
void find_unread(const jinja::Value& record, std::span<const std::string_view> read, UnreadFields& out);

// Throws RecordFault if the record contains preferences, that is, a field that says that an answer is not wanted: pairs
// of answers (`chosen`, `rejected`, ms-swift's `rejected_response`), or KTO's `label` for one answer.
void refuse_preferences(const jinja::Value& record);

}  // namespace strata::text
