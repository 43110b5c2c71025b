#pragma once
#include <string_view>

#include "text/template/syntax/syntax.h"

namespace strata::text::jinja {

// Parses a template as Jinja does, with loop controls and {% generation %}. `source` is UTF-8. Throws SyntaxFault, also
// for what a single file cannot have (include, import, extends).
Block parse(std::string_view source);

}  // namespace strata::text::jinja
