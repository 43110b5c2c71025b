#pragma once
#include <string>

#include "base/error.h"

namespace strata::tests {

// The Error that f() throws, or {done, ""} if it throws none.
template <typename F>
Error failure_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return {Exit::done, ""};
}

}  // namespace strata::tests

// Expects Error{expected_code} from `statement`, with a message that satisfies `matcher` (a gmock matcher of strings).
#define EXPECT_FAILURE(statement, expected_code, matcher)                                 \
  do {                                                                                    \
    const ::strata::Error strata_error = ::strata::tests::failure_of([&] { statement; }); \
    EXPECT_EQ(strata_error.code(), expected_code) << strata_error.what();                 \
    EXPECT_THAT(std::string(strata_error.what()), matcher);                               \
  } while (0)
