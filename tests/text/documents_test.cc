#include "text/documents.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "text/tokenizer.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DocumentPart first_part(const std::string& table, InputKind kind) {
  const tests::ScratchFolder folder;
  folder.write("table", table);
  const auto tokenizer = load_tokenizer("byte");
  DocumentReader reader({{(folder.path() / "table").string(), kind}}, false, *tokenizer);
  DocumentPart part;
  EXPECT_TRUE(reader.next(part));
  return part;
}

TEST(DocumentReaderTest, TheFirstLineMayNameTheSeparator) {
  for (const char separator : {';', '|', '\t', ',', ':'}) {
    const std::string rest = fmt::format("text{0}label\n\"a{0}b\"{0}c\n", separator);
    for (const char* end : {"\n", "\r\n"}) {
      const DocumentPart part = first_part(fmt::format("sep={}{}{}", separator, end, rest), InputKind::comma_table);
      EXPECT_EQ(part.separator, separator);
      EXPECT_EQ(part.header + part.text, rest);
      EXPECT_EQ(part.line, 3u);
    }
  }
  // The header contains such a name.
  EXPECT_EQ(first_part("sep=x,label\na,b\n", InputKind::comma_table).separator, ',');
  EXPECT_EQ(first_part("sep=x\tlabel\na\tb\n", InputKind::tab_table).separator, '\t');
}

TEST(DocumentReaderTest, RefusesAnInvalidSeparatorLine) {
  for (const char* line : {"sep=\"", "sep=", "sep=;;", "sep=\\t", "sep=\u00a6", "sep=tab"})
    for (const char* end : {"\n", "\r\n"})
      for (const InputKind kind : {InputKind::comma_table, InputKind::tab_table})
        EXPECT_FAILURE(first_part(std::string(line) + end + "\"text\",\"label\"\n\"a\",\"b\"\n", kind), Exit::corrupt,
                       AllOf(HasSubstr("table, line 1: " + std::string(line) + " names no separator"),
                             HasSubstr("leave the line out")));
}

}  // namespace
}  // namespace strata::text
