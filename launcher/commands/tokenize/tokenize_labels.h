#pragma once
// launcher/commands/tokenize/ is `strata tokenize`: plain text and chats (tokenize.cc), and labelled texts (here).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/outputs.h"
#include "launcher/token_output.h"
#include "text/documents.h"
#include "text/tokenizer.h"

namespace strata::launcher {

// Figures that both kinds of tokenization need: the number of threads, and the bytes of all inputs (0 if one of them is
// standard input).
std::size_t threads_of(const TokenizeOptions& options);
std::uint64_t bytes_of(const std::vector<NamedFile>& files, std::size_t inputs);

// `strata tokenize --labels`: writes one document per record, with its label. bytes: the size of all inputs; 0 if
// unknown. Returns the exit code; throws Error.
int tokenize_labels(const TokenizeOptions& options, const std::vector<text::DocumentInput>& inputs, std::uint64_t bytes,
                    const text::Tokenizer& tokenizer, TokenOutput& output);

// Whether a text begins like CoNLL's files of tagged words (Tjong Kim Sang and De Meulder 2003): columns separated by
// spaces or tabs, with the word first and its tag last ("O", "B-TYPE" or "I-TYPE"), and an empty line after each
// sentence. text: the beginning of the file, whose last line may be incomplete.
bool has_tag_columns(std::string_view text);
// The advice for such a file: the command that converts it to JSONL, and the options for reading the result.
std::string conversion_of_columns(const std::string& name);

}  // namespace strata::launcher
