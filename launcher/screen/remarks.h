#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// What loading something found that the user should read, as notes (printable.h): of a job's model and data; of the
// tokenizer that `where` holds; of a chat template. Each command that loads one of these says it, once.
void tell_remarks(std::span<const std::string> remarks);
void tell_remarks(const std::filesystem::path& where, const text::Tokenizer& tokenizer);
void tell_remarks(const text::ChatTemplate& made);

}  // namespace strata::launcher
