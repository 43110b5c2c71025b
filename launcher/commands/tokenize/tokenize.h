#pragma once
// launcher/commands/tokenize/ is `strata tokenize`: plain text and chats (here), labelled texts (tokenize_labels.h).
#include "launcher/commands/tokenize/tokenize_options.h"

namespace strata::launcher {

// `strata tokenize`: writes documents (text files, lines of JSONL) one after the other, with an end-of-text token
// between two, none with `byte`. Inputs are read in pieces, so they may be of any size; the tokens do not depend on the
// number of threads. The output files are replaced together or not at all. Returns the exit code; throws Error.
int tokenize(const TokenizeOptions& options);

}  // namespace strata::launcher
