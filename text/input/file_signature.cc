#include "text/input/file_signature.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/quote.h"
#include "text/unicode/utf8.h"

namespace strata::text {

namespace {

using namespace std::string_view_literals;

std::string without_extension(std::string_view name) {
  const std::size_t slash = name.rfind('/'), dot = name.rfind('.');
  const bool has = dot != name.npos && dot > 0 && (slash == name.npos || dot > slash + 1);
  return std::string(has ? name.substr(0, dot) : name);
}

// A command that converts the file `name` to one with another extension. Paths are arguments, not part of the code.
std::string conversion(std::string_view code, std::string_view name, std::string_view extension) {
  return python_command(code, {name, without_extension(name) + std::string(extension)}) + " converts it";
}

// Leaves out nulls: a table writes all fields of all records, so calls of one tool would have the arguments of another.
std::string to_lines(std::string_view module, std::string_view table, std::string_view name) {
  return conversion(
      fmt::format("import json, {}; full = lambda v: {{k: full(x) for k, x in v.items() if x is not None}} if "
                  "isinstance(v, dict) else [full(x) for x in v] if isinstance(v, list) else v; open(argv[2], "
                  "'w').writelines(json.dumps(full(r), default=str) + '\\n' for r in {}.to_pylist())",
                  module, table),
      name, ".jsonl");
}

std::string parquet(std::string_view name) {
  return "is Parquet, which is not supported: " +
         to_lines("pyarrow.parquet", "pyarrow.parquet.read_table(argv[1])", name);
}

std::string arrow(std::string_view name, std::string_view reader) {
  return "is Arrow, which is not supported: " +
         to_lines("pyarrow.ipc", fmt::format("pyarrow.ipc.{}(argv[1]).read_all()", reader), name);
}

std::string feather(std::string_view name) {
  return "is Feather, which is not supported: " +
         to_lines("pyarrow.feather", "pyarrow.feather.read_table(argv[1])", name);
}

std::string workbook(std::string_view what, std::string_view name) {
  return fmt::format(
      "is {}: save it as CSV (UTF-8), or {}", what,
      conversion("import pandas; pandas.read_excel(argv[1]).to_csv(argv[2], index=False)", name, ".csv"));
}

constexpr std::string_view kDocx = "is a Word document: save it as plain text (pandoc -t plain does)";

// The kind of a zip file, from the names of its contents.
std::string zip(std::string_view head, std::string_view name) {
  const auto has = [&](std::string_view part) { return head.find(part) != head.npos; };
  if (has("xl/")) return workbook("an Excel workbook", name);
  if (has("word/")) return std::string(kDocx);
  if (has("ppt/")) return "is a PowerPoint presentation: save its text as plain text";
  if (has("opendocument.spreadsheet")) return workbook("an OpenDocument spreadsheet", name);
  if (has("opendocument")) return "is an OpenDocument file: save it as plain text (pandoc -t plain does)";
  if (has("epub+zip")) return "is an EPUB: convert it with pandoc -t plain";
  if (has("data.pkl")) return "is a PyTorch file (torch.save), not text";
  if (has(".npy")) return "contains NumPy arrays (.npz), not text";
  if (std::string out = kind_of_extension(name.substr(std::min(name.rfind('.'), name.size() - 1) + 1), name);
      !out.empty())
    return out;
  return "is a zip archive: unzip it, and give the files in it";
}

// Bytes that identify a kind of file. Because a text may begin with the same letters, `binary` requires a byte
// elsewhere in the head that no text has. If `bytes` is not at the start, `begins` gives bytes that must be there.
struct Signature {
  std::string_view bytes;
  std::string_view is;
  bool binary = false;
  std::size_t at = 0;
  std::string_view begins;
};
constexpr auto kSignatures = std::to_array<Signature>({
    {"%PDF-"sv, "is a PDF: convert it with pdftotext"},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "is an old Office document (.doc, .xls, .ppt): save it as text or CSV"},
    {"{\\rtf"sv, "is RTF: save it as plain text (pandoc -t plain does)"},
    {"SQLite format 3\0"sv, "is an SQLite database: export a table with sqlite3 -csv -header FILE 'select ...'"},
    {"\x93NUMPY"sv, "is a NumPy array (.npy), not text"},
    {"\x89HDF\r\n\x1a\n"sv, "is HDF5: write its records as JSONL or CSV"},
    {"Obj\x01"sv, "is Avro: write its records as JSONL"},
    {"GGUF"sv, "contains model weights (GGUF), not text", true},
    {"\x7f"
     "ELF"sv,
     "is a program, not text"},
    {"\0asm"sv, "is a program, not text"},
    {"MZ\x90\0"sv, "is a program, not text"},
    {"\x89PNG\r\n\x1a\n"sv, "is an image (PNG), not text"},
    {"\xff\xd8\xff"sv, "is an image (JPEG), not text"},
    {"GIF87a"sv, "is an image (GIF), not text", true},
    {"GIF89a"sv, "is an image (GIF), not text", true},
    {"II*\0"sv, "is an image (TIFF), not text"},
    {"MM\0*"sv, "is an image (TIFF), not text"},
    {"WEBP"sv, "is an image (WebP), not text", true, 8, "RIFF"sv},
    {"WAVE"sv, "is audio (WAV), not text", true, 8, "RIFF"sv},
    {"ftyp"sv, "is video or audio (MP4), not text", true, 4, "\0\0\0"sv},
    {"OggS\0"sv, "is audio (Ogg), not text"},
    {"fLaC\0"sv, "is audio (FLAC), not text"},
    {"ID3\x02"sv, "is audio (MP3), not text"},
    {"ID3\x03"sv, "is audio (MP3), not text"},
    {"ID3\x04"sv, "is audio (MP3), not text"},
    {"\x1a\x45\xdf\xa3"sv, "is video (Matroska, WebM), not text"},
    {"ustar"sv, "is a tar archive: unpack it with tar -xf, and give the files in it", true, 257},
    {"7z\xbc\xaf\x27\x1c"sv, "is a 7z archive: unpack it with 7z x, and give the files in it"},
    {"Rar!\x1a\x07"sv, "is a RAR archive: unpack it, and give the files in it"},
    {"\x04\x22\x4d\x18"sv, "is compressed by lz4, which is not supported: lz4 -d unpacks it"},
    {"\x1f\x9d"sv, "is compressed by compress, which is not supported: gzip -d unpacks it"},
    {"\xff\x06\0\0sNaPpY"sv, "is compressed by snappy, which is not supported: unpack it first"},
    {"LZIP\x01"sv, "is compressed by lzip, which is not supported: lzip -d unpacks it"},
    {"\x5d\0\0"sv, "is compressed by lzma, which is not supported: xz -d unpacks it"},
    {"wOFF"sv, "is a font, not text", true},
});

// Whether the head has a byte below the tab character, which no text contains.
bool has_binary(std::string_view head) {
  return std::ranges::any_of(head, [](char c) { return static_cast<unsigned char>(c) < 0x09; });
}

bool is_pickle(std::string_view head) {
  // PROTO, followed by the start of a pickle of protocol 2 to 5: a frame, a collection, or a class.
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 &&
         "\x95}](c\x8c\x8a)KX"sv.find(head[2]) != std::string_view::npos;
}

bool is_safetensors(std::string_view head) {
  std::uint64_t length = 0;
  if (head.size() < 10 || head[8] != '{') return false;
  std::memcpy(&length, head.data(), sizeof length);
  return length < (std::uint64_t{1} << 32);
}

}  // namespace

std::string kind_of_extension(std::string_view extension, std::string_view name) {
  if (extension == "parquet") return parquet(name);
  if (extension == "feather") return feather(name);
  if (extension == "arrow") return arrow(name, "open_stream");
  if (extension == "xlsx" || extension == "xlsm") return workbook("an Excel workbook", name);
  if (extension == "ods") return workbook("an OpenDocument spreadsheet", name);
  if (extension == "xls") return workbook("an old Excel workbook", name);
  if (extension == "docx") return std::string(kDocx);
  if (extension == "pdf") return "is a PDF: convert it with pdftotext";
  if (extension == "pkl" || extension == "pickle") return "is a Python pickle: write its records as JSONL";
  if (extension == "safetensors") return "contains model weights (safetensors), not text";
  return {};
}

std::string file_kind(std::string_view head, std::string_view name) {
  const bool binary = has_binary(head);
  if (binary && head.starts_with("PAR1")) return parquet(name);
  if (binary && head.starts_with("ARROW1")) return arrow(name, "open_file");
  if (binary && head.starts_with("FEA1")) return feather(name);
  if (head.starts_with("\xff\xff\xff\xff")) return arrow(name, "open_stream");
  if (head.starts_with("PK\3\4") || head.starts_with("PK\5\6")) return zip(head, name);
  for (const Signature& known : kSignatures)
    if (head.size() >= known.at && head.substr(known.at).starts_with(known.bytes) && head.starts_with(known.begins) &&
        (binary || !known.binary))
      return std::string(known.is);
  if (is_pickle(head)) return "is a Python pickle (or an old torch.save file), not text: write its records as JSONL";
  if (is_safetensors(head)) return "contains model weights (safetensors), not text";
  if (binary && head.starts_with("ORC") && head.size() > 3 && static_cast<unsigned char>(head[3]) < 0x20)
    return "is ORC: write its records as JSONL";
  return {};
}

namespace {

std::size_t width_of(Encoding encoding) {
  if (encoding == Encoding::utf8) return 1;
  return encoding == Encoding::utf16_little || encoding == Encoding::utf16_big ? 2 : 4;
}

std::uint32_t unit_at(Encoding encoding, std::string_view in, std::size_t at) {
  const std::size_t width = width_of(encoding);
  const bool little = encoding == Encoding::utf16_little || encoding == Encoding::utf32_little;
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < width; ++i)
    out = out << 8 | static_cast<unsigned char>(in[at + (little ? width - 1 - i : i)]);
  return out;
}

// The start of the last character if `text` may contain only part of that character, otherwise the end of the text.
std::size_t end_of_complete_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char byte = text[text.size() - back];
    if ((static_cast<unsigned char>(byte) & 0xc0) == 0x80) continue;
    return character_length(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::uint64_t wrong_bytes(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text[at]);
    if (length <= text.size() - at && is_valid_utf8(text.substr(at, length))) {
      at += length;
    } else {
      ++wrong;
      ++at;
    }
  }
  return wrong;
}

}  // namespace

std::string_view name_of(Encoding encoding) {
  static constexpr std::array<std::string_view, 5> kNames = {"UTF-8", "UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"};
  return kNames[static_cast<std::size_t>(encoding)];
}

Mark byte_order_mark(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\xff\xfe\0\0"sv)) return {Encoding::utf32_little, 4};  // UTF-16's mark is a prefix of it
  if (head.starts_with("\0\0\xfe\xff"sv)) return {Encoding::utf32_big, 4};
  if (head.starts_with("\xff\xfe"sv)) return {Encoding::utf16_little, 2};
  if (head.starts_with("\xfe\xff"sv)) return {Encoding::utf16_big, 2};
  if (head.starts_with("\xef\xbb\xbf"sv)) return {Encoding::utf8, 3};
  return {};
}

Encoding encoding_from_zero_bytes(std::string_view head) {
  std::array<std::size_t, 4> zeros{};
  const std::size_t quarters = head.size() / 4;
  for (std::size_t i = 0; i < 4 * quarters; ++i) zeros[i % 4] += head[i] == '\0';
  const auto most = [&](std::size_t place) { return 10 * zeros[place] >= 7 * quarters; };
  const auto few = [&](std::size_t place) { return 10 * zeros[place] <= quarters; };
  if (quarters == 0) return Encoding::utf8;
  if (few(0) && most(1) && most(2) && most(3)) return Encoding::utf32_little;
  if (most(0) && most(1) && most(2) && few(3)) return Encoding::utf32_big;
  if (few(0) && most(1) && few(2) && most(3)) return Encoding::utf16_little;
  if (most(0) && few(1) && most(2) && few(3)) return Encoding::utf16_big;
  return Encoding::utf8;
}

bool decode(Encoding encoding, std::string_view& in, bool last, std::string& out) {
  const std::size_t width = width_of(encoding);
  std::size_t at = 0;
  bool good = true;
  while (at + width <= in.size()) {
    std::uint32_t code = unit_at(encoding, in, at);
    std::size_t size = width;
    if (width == 2 && code >= 0xd800 && code < 0xdc00) {
      if (at + 4 > in.size()) break;
      const std::uint32_t low = unit_at(encoding, in, at + 2);
      good = low >= 0xdc00 && low < 0xe000;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      size = 4;
    } else {
      good = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    }
    if (!good) break;
    append_character(static_cast<char32_t>(code), out);
    at += size;
  }
  in.remove_prefix(at);
  return good && (!last || in.empty());
}

void Utf8Count::add(std::string_view piece) {
  bytes_ += piece.size();
  if (!held_.empty()) {
    // Append as many bytes of the piece as one character may need.
    const std::size_t size = held_.size(), most = std::min<std::size_t>(piece.size(), 3);
    held_ += piece.substr(0, most);
    std::size_t at = 0;
    while (at < size) {
      const std::size_t length = character_length(held_[at]);
      if (length > held_.size() - at && piece.size() == most) {  // more bytes may complete it
        held_.erase(0, at);
        return;
      }
      const bool whole = is_valid_utf8(std::string_view(held_).substr(at, length));
      wrong_ += whole ? 0 : 1;
      at += whole ? length : 1;
    }
    held_.clear();
    piece.remove_prefix(at - size);
  }
  const std::size_t end = end_of_complete_characters(piece);
  wrong_ += wrong_bytes(piece.substr(0, end));
  held_ = piece.substr(end);
}

void Utf8Count::finish() {
  wrong_ += wrong_bytes(held_);
  held_.clear();
}

}  // namespace strata::text
