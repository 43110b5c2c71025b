#pragma once
// base/ holds what every folder may use: errors and exit codes (here), the abort token that ends all waits of a run
// (abort.h), files (files/), JSON (json/), the name and addresses of this machine (host/), threads and parallel loops
// (thread.h), numbers as text (quantity.h), quotations in messages (quote.h), and the callbacks for notes and progress
// (progress.h). It does not depend on devices, models or runs. A user's mistake is an Error. A broken invariant ends
// the process through STRATA_CHECK, which prints both values.

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace strata {

// The program's exit codes (docs/guide.md, "Exit codes").
enum class Exit : int { done = 0, failed = 1, usage = 2, does_not_fit = 3, corrupt = 4, requeue = 75 };

// A mistake that the user can fix, or an I/O failure. The message is one sentence: what happened, where, and what to
// do. `code` becomes the program's exit status.
class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

// The exit code for an exception: an Error's own code, otherwise `failed`.
Exit exit_code(const std::exception& exception);

// Throws Error{code}. fmt formats the message.
template <typename... Args>
[[noreturn]] void fail(Exit code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Aborts the process because an invariant of the program is broken. Prints the source location and both values.
[[noreturn]] void invariant_failed(const char* file, int line, const char* expression, const std::string& values);

}  // namespace strata

// Checks an invariant of the program, never user input. On failure it prints both sides and aborts.
#define STRATA_CHECK_OP(a, op, b)                                                                                     \
  do {                                                                                                                \
    const auto& strata_a = (a);                                                                                       \
    const auto& strata_b = (b);                                                                                       \
    if (!(strata_a op strata_b))                                                                                      \
      ::strata::invariant_failed(__FILE__, __LINE__, #a " " #op " " #b, fmt::format("{} vs {}", strata_a, strata_b)); \
  } while (0)
#define STRATA_CHECK_EQ(a, b) STRATA_CHECK_OP(a, ==, b)
#define STRATA_CHECK_LE(a, b) STRATA_CHECK_OP(a, <=, b)
#define STRATA_CHECK_LT(a, b) STRATA_CHECK_OP(a, <, b)
#define STRATA_CHECK(condition)                                                            \
  do {                                                                                     \
    if (!(condition)) ::strata::invariant_failed(__FILE__, __LINE__, #condition, "false"); \
  } while (0)
