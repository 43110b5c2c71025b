#include "text/input/input_bytes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/failure.h"
#include "tests/scratch_folder.h"
#include "tests/text/input/compressed.h"
#include "text/documents.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class InputBytesTest : public testing::Test {
 protected:
  std::string read(const std::string& name, const std::string& bytes, std::size_t size = 1000) {
    InputBytes input(folder_.write(name, bytes).string());
    std::string out, all;
    while (!input.at_end()) {
      out.clear();
      input.read(out, size);
      all += out;
    }
    encoding_ = input.encoding();
    return all;
  }
  strata::tests::ScratchFolder folder_;
  Encoding encoding_ = Encoding::utf8;
};

// Characters as UTF-16 or UTF-32.
std::string encoded(const std::u32string& text, Encoding encoding) {
  std::string out;
  const auto add = [&](std::uint32_t unit, int width, bool little) {
    for (int i = 0; i < width; ++i) out += static_cast<char>(unit >> 8 * (little ? i : width - 1 - i));
  };
  for (const char32_t code : text) {
    if (encoding == Encoding::utf32_little || encoding == Encoding::utf32_big) {
      add(code, 4, encoding == Encoding::utf32_little);
    } else if (code < 0x10000) {
      add(code, 2, encoding == Encoding::utf16_little);
    } else {
      add(0xd800 + ((code - 0x10000) >> 10), 2, encoding == Encoding::utf16_little);
      add(0xdc00 + ((code - 0x10000) & 0x3ff), 2, encoding == Encoding::utf16_little);
    }
  }
  return out;
}

TEST_F(InputBytesTest, ConvertsEncodingsWithAMarkToUtf8) {
  rc::check([this] {
    const auto codes = *rc::gen::container<std::u32string>(rc::gen::suchThat(
        rc::gen::inRange<char32_t>(1, 0x11000), [](char32_t c) { return (c < 0xd800 || c > 0xdfff) && c != 0xfeff; }));
    std::string utf8;
    for (const char32_t code : codes) append_character(code, utf8);
    const std::size_t size = *rc::gen::inRange<std::size_t>(1, 50);
    for (const Encoding encoding :
         {Encoding::utf16_little, Encoding::utf16_big, Encoding::utf32_little, Encoding::utf32_big}) {
      const std::string bytes = encoded(U"\xfeff" + codes, encoding);
      RC_ASSERT(read("a.txt", bytes, size) == utf8);
      RC_ASSERT(encoding_ == encoding);
      RC_ASSERT(read("a.txt", tests::compressed(Compression::gzip, bytes), size) == utf8);
    }
  });
}

TEST_F(InputBytesTest, AnIncompleteCharacterIsDamage) {
  for (const std::u32string text : {U"ab", U"\x1f600"})
    for (const Encoding encoding : {Encoding::utf16_little, Encoding::utf16_big, Encoding::utf32_little}) {
      std::string bytes = encoded(U"\xfeff" + text, encoding);
      bytes.pop_back();
      EXPECT_FAILURE(read("a.txt", bytes), Exit::corrupt,
                     AllOf(HasSubstr(std::string(name_of(encoding))), HasSubstr("invalid character")));
    }
}

TEST_F(InputBytesTest, DetectsEncodingsByZerosWithoutAMark) {
  std::string text = "plain text without a mark";
  for (const Encoding encoding :
       {Encoding::utf16_little, Encoding::utf16_big, Encoding::utf32_little, Encoding::utf32_big})
    EXPECT_FAILURE(read("a.txt", encoded({text.begin(), text.end()}, encoding)), Exit::usage,
                   HasSubstr(fmt::format("iconv -f {} -t UTF-8", name_of(encoding))));
}

TEST_F(InputBytesTest, RecognisesKindsOfFiles) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> kinds = {{"PAR1\0\0"s, "Parquet"},
                                                                  {"ARROW1\0\0"s, "open_file"},
                                                                  {"\xff\xff\xff\xff\x10\0\0\0"s, "open_stream"},
                                                                  {"FEA1\0\0\0\0"s, "Feather"},
                                                                  {"PK\3\4....word/document.xml"s, "Word"},
                                                                  {"PK\3\4....model/data.pkl"s, "PyTorch"},
                                                                  {"PK\3\4....a.txt"s, "zip"},
                                                                  {"%PDF-1.7"s, "pdftotext"},
                                                                  {"\x80\x02}q\0"s, "pickle"},
                                                                  {"\x10\0\0\0\0\0\0\0{\"a\":{}}"s, "safetensors"},
                                                                  {"\x93NUMPY\1\0"s, "NumPy"},
                                                                  {"SQLite format 3\0"s, "SQLite"},
                                                                  {"\x89PNG\r\n\x1a\n"s, "PNG"},
                                                                  {"\xff\xd8\xff\xe0"s, "JPEG"},
                                                                  {"GGUF\3\0\0\0"s, "GGUF"},
                                                                  {"GIF89a\1\0\1\0"s, "GIF"},
                                                                  {"RIFF\x24\0\0\0WAVEfmt "s, "WAV"},
                                                                  {"RIFF\x24\0\0\0WEBPVP8 "s, "WebP"},
                                                                  {"\0\0\0\x20"
                                                                   "ftypisom"s,
                                                                   "MP4"},
                                                                  {"wOFF\0\1\0\0"s, "font"},
                                                                  {"ORC\x0a\3\0\0"s, "ORC"},
                                                                  {std::string(257, 'a') + "ustar\0"s, "tar"}};
  for (const auto& [bytes, what] : kinds) {
    EXPECT_FAILURE(read("a", bytes), Exit::usage, AllOf(HasSubstr("a "), HasSubstr(what)));
    EXPECT_FAILURE(read("a.gz", tests::compressed(Compression::gzip, bytes)), Exit::usage,
                   AllOf(HasSubstr("compressed by gzip"), HasSubstr(what)));
  }
  EXPECT_FAILURE(read("b.XLSX", "anything"), Exit::usage, HasSubstr("Excel"));
  EXPECT_FAILURE(read("c", std::string(5000, 'x') + '\0'), Exit::usage, HasSubstr("offset 5000"));
  EXPECT_FAILURE(read("d.gz", tests::compressed(Compression::gzip, tests::compressed(Compression::xz, "a"))),
                 Exit::usage, HasSubstr("compressed again, by xz"));
}

// The error for a placeholder file says what to do, whatever the file's name suggests.
TEST_F(InputBytesTest, ExplainsFilesThatWereNotDownloaded) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 548105171\n";
  for (const char* name : {"a.jsonl", "a.txt", "a.csv", "a", "a.jsonl.gz", "a.parquet", "a.zst"})
    EXPECT_FAILURE(read(name, pointer), Exit::usage,
                   AllOf(HasSubstr(std::string(name) + " is a Git LFS pointer"), HasSubstr("git lfs pull")));
  EXPECT_EQ(read("b.txt", "On LFS:\n" + pointer), "On LFS:\n" + pointer);
  const std::string log = pointer + std::string(1024, 'x');
  EXPECT_EQ(read("c.txt", log), log) << "too long for one";
  std::filesystem::create_symlink("../../blobs/0123abcd", folder_.path() / "d.jsonl");
  EXPECT_FAILURE(InputBytes((folder_.path() / "d.jsonl").string()), Exit::usage,
                 AllOf(HasSubstr("d.jsonl is a link to ../../blobs/0123abcd"), HasSubstr("download it again")));
  EXPECT_FAILURE(InputBytes(folder_.path().string()), Exit::usage, HasSubstr("is a folder: give the files in it"));
}

// Standard input is a terminal.
class InputTerminalTest : public testing::Test {
 protected:
  InputTerminalTest() : kept_(::dup(STDIN_FILENO)), controller_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    char name[64] = {};
    EXPECT_EQ(::grantpt(controller_.get()) | ::unlockpt(controller_.get()), 0);
    EXPECT_EQ(::ptsname_r(controller_.get(), name, sizeof name), 0);
    const Descriptor terminal(::open(name, O_RDWR | O_NOCTTY));
    EXPECT_EQ(::dup2(terminal.get(), STDIN_FILENO), STDIN_FILENO);
  }
  ~InputTerminalTest() override { ::dup2(kept_.get(), STDIN_FILENO); }
  Descriptor kept_, controller_;
};

// Typed input can be read only once, so the check of its beginning must not consume it.
TEST_F(InputTerminalTest, DoesNotLoseTypedInput) {
  const std::string typed = "first\nsecond\n\x04\x04";
  ASSERT_EQ(::write(controller_.get(), typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  EXPECT_EQ(look_at_input("/dev/stdin").text, "");
  InputBytes input("/dev/stdin");
  std::string text;
  input.read(text, 1000);
  EXPECT_EQ(text, "first\nsecond\n");
}

// A text may begin with the letters that mark other files.
TEST_F(InputBytesTest, AcceptsTextsThatBeginLikeOtherFiles) {
  for (const std::string& text : std::vector<std::string>{
           "{\"id\": \"WAVE-1\"}\n", "{\"id\": \"WEBP-1\"}\n", "RIFF and WAVE\n", "RIFF 12 WAVE\n", "RIFF or WEBP\n",
           "the ftyp box\n", "{\"a\"ftyp\n", std::string(257, 'a') + "ustar\n", "GGUF is a format\n",
           "GGUF\nis a format\n", "GGUF\tv3\n", "PAR1\n", "PAR1 scores\n", "FEA1,b\r\n", "ARROW1 of 3\n",
           "wOFF, a font\n", "GIF87a\n", "GIF89a is a format\n", "ORC\nand elf\n"}) {
    EXPECT_EQ(read("a.txt", text), text);
    EXPECT_EQ(read("a.jsonl", text), text);
    EXPECT_EQ(read("a.gz", tests::compressed(Compression::gzip, text)), text);
  }
}

TEST(InputName, IgnoresCaseAndCompressionOfExtensions) {
  EXPECT_EQ(kind_of_name("d/A.JSONL.Gz"), InputKind::lines);
  EXPECT_EQ(kind_of_name("a.ndjson"), InputKind::lines);
  EXPECT_EQ(kind_of_name("a.jsonlines.zst"), InputKind::lines);
  EXPECT_EQ(kind_of_name("a.Csv.bz2"), InputKind::comma_table);
  EXPECT_EQ(kind_of_name("a.tsv.xz"), InputKind::tab_table);
  for (const char* name : {"-", "a", "jsonl", "d.csv/a", "a.gz", "a.jsonl.txt", "a.csv.gz.gz"})
    EXPECT_EQ(kind_of_name(name), std::nullopt) << name;
}

// The numbers are those of Python's bytes.decode, however the bytes are divided into pieces.
TEST(Utf8CountTest, DoesNotDependOnPieces) {
  rc::check([] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::elementOf(std::string("ab\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc0")));
    Utf8Count whole, pieces;
    whole.add(text);
    whole.finish();
    for (std::size_t at = 0; at < text.size();) {
      const auto size = *rc::gen::inRange<std::size_t>(1, 6);
      pieces.add(std::string_view(text).substr(at, size));
      at += size;
    }
    pieces.finish();
    RC_ASSERT(whole.wrong() == pieces.wrong());
    RC_ASSERT((whole.wrong() == 0) == is_valid_utf8(text));
  });
  Utf8Count some;
  some.add("caf\xe9 \xc3\xa9 \xf0\x9f");
  some.finish();
  EXPECT_EQ(some.wrong(), 3u);
  EXPECT_EQ(some.bytes(), 10u);
}

}  // namespace
}  // namespace strata::text
