#include "text/input/file_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace strata::text {
namespace {

using namespace std::string_view_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(FileKind, IsDetectedByTheFirstBytes) {
  EXPECT_THAT(file_kind("%PDF-1.7\n", "a.txt"), HasSubstr("is a PDF"));
  EXPECT_THAT(file_kind("\x89PNG\r\n\x1a\n"sv, "a.txt"), HasSubstr("is an image (PNG)"));
  EXPECT_THAT(file_kind("\x7f"
                        "ELF\x02\x01"sv,
                        "a"),
              HasSubstr("is a program"));
}

TEST(FileKind, DetectsTablesAndWeightsByTheirFirstBytes) {
  for (const std::string_view pickle : {"\x80\x02}q"sv, "\x80\x05\x95\x10\0"sv})
    EXPECT_THAT(file_kind(pickle, "a"), HasSubstr("a Python pickle")) << int{pickle[1]};
  EXPECT_EQ(file_kind("\x80\x01}q"sv, "a"), "") << "this protocol writes no such byte";
  EXPECT_THAT(file_kind("PAR1\x15\x04"sv, "a.parquet"), StartsWith("is Parquet"));
  EXPECT_EQ(file_kind("PAR1 is a golf term.", "a.txt"), "");
  EXPECT_THAT(file_kind("\x40\0\0\0\0\0\0\0{\"a\""sv, "a"), HasSubstr("safetensors"));
  EXPECT_THAT(file_kind("ORC\x0a\x03"sv, "a"), HasSubstr("is ORC"));
}

// A text may begin with the same letters.
TEST(FileKind, LetterSignaturesNeedNonTextBytes) {
  EXPECT_EQ(file_kind("GGUF is a format of weights.", "a.txt"), "");
  EXPECT_THAT(file_kind("GGUF\x03\0\0\0"sv, "a.txt"), HasSubstr("model weights"));
  EXPECT_EQ(file_kind("GIF89a, said the header.", "a.txt"), "");
}

TEST(FileKind, DetectsSignaturesAtOtherOffsets) {
  EXPECT_THAT(file_kind("RIFF\x24\0\0\0WAVEfmt "sv, "a"), HasSubstr("audio (WAV)"));
  EXPECT_THAT(file_kind("RIFF\x24\0\0\0WEBPVP8 "sv, "a"), HasSubstr("image (WebP)"));
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(file_kind(tar, "a"), HasSubstr("tar -xf"));
}

TEST(FileKind, IdentifiesAZipByItsContents) {
  const std::string zip = "PK\x03\x04";
  EXPECT_THAT(file_kind(zip + "xl/workbook.xml", "t.xlsx"), HasSubstr("an Excel workbook"));
  EXPECT_THAT(file_kind(zip + "word/document.xml", "t.docx"), HasSubstr("a Word document"));
  EXPECT_THAT(file_kind(zip + "archive/data.pkl", "m.pt"), HasSubstr("a PyTorch file"));
  EXPECT_THAT(file_kind(zip + "notes.txt", "a.zip"), HasSubstr("unzip it"));
}

TEST(FileKind, IsEmptyForText) {
  for (const std::string_view text : {""sv, "Once upon a time"sv, "{\"text\": 1}\n"sv, "\xef\xbb\xbfx"sv})
    EXPECT_EQ(file_kind(text, "a.txt"), "") << text;
}

// The name comes from the user, so the command takes it as an argument.
TEST(KindOfExtension, GivesACommandForTheFile) {
  EXPECT_THAT(kind_of_extension("parquet", "my data.parquet"),
              AllOf(StartsWith("is Parquet"), HasSubstr("'my data.parquet'"), HasSubstr("my data.jsonl")));
  EXPECT_THAT(kind_of_extension("parquet", "v1.0/data"), HasSubstr("v1.0/data.jsonl"))
      << "the dot belongs to the folder";
  EXPECT_THAT(kind_of_extension("parquet", "data/.parquet"), HasSubstr("data/.parquet.jsonl"))
      << "a name, not an extension";
  EXPECT_EQ(kind_of_extension("txt", "a.txt"), "");
  EXPECT_EQ(kind_of_extension("jsonl", "a.jsonl"), "");
}

}  // namespace
}  // namespace strata::text
