#pragma once
// text/template/ runs chat templates: Jinja as transformers runs it, on texts and without knowledge of tokens. The
// source is cut into tokens (lexer.h) and parsed into a tree (parser.cc, syntax.h). Each rendering walks the tree
// (interpreter.h) with Python's values (value.h), within limits (runtime.h). Open next: interpreter.h.

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/template/rendered.h"
#include "text/template/runtime.h"
#include "text/template/syntax/syntax.h"
#include "text/template/values/value.h"

namespace strata::text::jinja {

// A chat template as transformers runs it: Jinja in its immutable sandbox, with trim_blocks, lstrip_blocks, loop
// controls, {% generation %}, raise_exception, strftime_now and a `tojson` that does not escape HTML. Immutable, so any
// number of threads may render it.
class Template {
 public:
  // `name` is for messages. Throws Error{usage} with "NAME, line N: ..." if the text is not valid Jinja or uses a
  // feature that is not supported.
  Template(std::string_view source, std::string name);

  const std::string& name() const { return name_; }
  // Whether the template marks what the assistant writes.
  bool has_generation() const { return has_generation_; }

  // `variables` is a dict: messages, tools, add_generation_prompt, bos_token... `now`: the time for strftime_now, by
  // default that of the call. Throws Error{usage} with "NAME, line N: ..." and the error, the template's own message
  // (raise_exception), or the limit that was exceeded.
  Rendered render(const Value& variables, const Limits& limits = {}, std::optional<std::tm> now = std::nullopt) const;

 private:
  std::string name_;
  Block block_;
  bool has_generation_ = false;
};

}  // namespace strata::text::jinja
