#pragma once
#include <string>
#include <string_view>

namespace strata::launcher {

// Whether a text begins as CoNLL's files of tagged words do (Tjong Kim Sang and De Meulder 2003): columns between
// spaces or tabs, a word first and last its tag, "O", "B-TYPE" or "I-TYPE", with an empty line after each sentence.
// text: the beginning, of which the last line may be cut.
bool has_tag_columns(std::string_view text);
// What to do with such a file: the command that makes JSONL of it, and the options that read that.
std::string conversion_of_columns(const std::string& name);

}  // namespace strata::launcher
