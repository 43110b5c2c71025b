#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
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

// Whether a text begins as CoNLL's files of tagged words do (Tjong Kim Sang and De Meulder 2003): columns between
// spaces or tabs, a word first and last its tag, "O", "B-TYPE" or "I-TYPE", with an empty line after each sentence.
// text: the beginning, of which the last line may be cut.
bool has_tag_columns(std::string_view text);
// What to do with such a file: the command that makes JSONL of it, and the options that read that.
std::string conversion_of_columns(const std::string& name);

}  // namespace strata::launcher
