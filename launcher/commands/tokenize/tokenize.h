#pragma once
// launcher/commands/tokenize/ is `strata tokenize`: plain text and chats (here), labelled texts (tokenize_labels.h).
#include "launcher/commands/tokenize/tokenize_options.h"

namespace strata::launcher {

// `strata tokenize`: documents (text files, lines of JSONL) one after the other, an end-of-text token between two, none
// with `byte`. In pieces, so of any size; the tokens do not depend on the threads. Both files are replaced whole or not
// at all. Returns the exit code; throws Error.
int tokenize(const TokenizeOptions& options);

}  // namespace strata::launcher
