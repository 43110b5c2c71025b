#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/commands/tokenize/tokenize_options.h"
#include "launcher/outputs.h"
#include "launcher/token_output.h"
#include "text/documents.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// What both ways to tokenize ask: threads to start, and the bytes of all inputs, 0 if standard input is one of them.
std::size_t threads_of(const TokenizeOptions& options);
std::uint64_t bytes_of(const std::vector<NamedFile>& files, std::size_t inputs);

// `strata tokenize --labels`: a document per record, with what it is. bytes: of all inputs, 0 if nobody knows. Returns
// the exit code; throws Error.
int tokenize_labels(const TokenizeOptions& options, const std::vector<text::DocumentInput>& inputs, std::uint64_t bytes,
                    const text::Tokenizer& tokenizer, TokenOutput& output);

}  // namespace strata::launcher
