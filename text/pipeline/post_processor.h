#pragma once
#include "text/json/json.h"
#include "text/text_template.h"

namespace strata::text {

// The template that "post_processor" of a tokenizer.json puts around a text, and around two. ByteLevel's trimming of
// offsets does not change ids.
TextTemplate make_text_template(const Json& json);

}  // namespace strata::text
