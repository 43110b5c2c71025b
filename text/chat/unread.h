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

// Fields that say something and are not read, and in how many records.
using UnreadFields = std::map<std::string, std::uint64_t, std::less<>>;
// Of `out`, one more record with the field.
void count_unread(UnreadFields& out, std::string_view field);
// As a user is told: "context (3 records), id (1 record)".
std::string listed(const UnreadFields& fields);

// The fields that are read of a record: `field` of text; else by its format, and by whether a template writes it.
std::vector<std::string_view> fields_read(const jinja::Value& record, DataFormat format, bool templated,
                                          std::string_view field);
// Adds the record's fields that are not among `read`.
void find_unread(const jinja::Value& record, std::span<const std::string_view> read, UnreadFields& out);

// Throws RecordFault if the record is one of preferences, where a field says that an answer is not wanted: answers of
// pairs (`chosen`, `rejected`, ms-swift's `rejected_response`), KTO's `label` of one.
void refuse_preferences(const jinja::Value& record);

}  // namespace strata::text
