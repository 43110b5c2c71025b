#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "text/json/json.h"

namespace strata::text {

struct Match {
  std::size_t begin, end;
};

// The buffers that one thread needs to run any Regex: PCRE2's match block, and a stack for its compiled code.
class RegexMatcher {
 public:
  RegexMatcher();

 private:
  friend class Regex;
  template <auto free>
  struct Free {
    template <typename T>
    void operator()(T* p) const {
      free(p);
    }
  };
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> match_;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_;
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack_;
};

// A pattern in a tokenizer.json, in the syntax of Oniguruma (Ruby), which the tokenizers library uses: \s, \w and \d
// follow Unicode, ^ and $ match at lines, and \h is a hexadecimal digit. PCRE2 compiles it to machine code. Constructs
// that the two libraries read differently are rewritten, or refused by name. Immutable.
class Regex {
 public:
  // `place`: where the pattern is, for messages. Throws Error{usage} if the pattern is not supported.
  Regex(std::string_view pattern, const Json& place);
  // One of the program's own patterns, in PCRE2's syntax.
  explicit Regex(std::string_view pattern);

  // The first match in `text` (valid UTF-8) at or after `from`. Throws Error{failed} if PCRE2 gives up.
  bool find(std::string_view text, std::size_t from, RegexMatcher& matcher, Match& match) const;

 private:
  void compile(std::string_view pattern, std::string& error);

  std::unique_ptr<pcre2_code, RegexMatcher::Free<pcre2_code_free>> code_;
};

// Translates the pattern into PCRE2's syntax. `unsupported` receives a construct without a counterpart.
std::string from_oniguruma(std::string_view pattern, std::string& unsupported);

// A pattern that matches `literal` itself.
std::string escaped_for_regex(std::string_view literal);

}  // namespace strata::text
