#pragma once
// text/input/ is how the bytes of an input become text: opened, decompressed (decompressor.h), in UTF-8 (encoding.h);
// and what is no text is refused by what it is (file_signature.h). Open this header first.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/descriptor.h"
#include "text/input/decompressor.h"
#include "text/input/encoding.h"

namespace strata::text {

// What a file's name says of its content: its last ending in small letters, without the one of a compression: "jsonl"
// of "A.JSONL.gz". Empty without one.
std::string content_ending(std::string_view name);

// The text of an input, front to back: decompressed if it begins as gzip, zstd, xz or bzip2 does; from UTF-16 and
// UTF-32 with a byte order mark to UTF-8; without the mark. Throws Error{usage} if it is missing or no text, by what it
// is; Error{corrupt}, with its name, if what is compressed or encoded is damaged or ends too early; Error{failed} if it
// cannot be read.
class InputBytes {
 public:
  // Opens the file; "-": standard input. Reads nothing.
  explicit InputBytes(const std::string& name);

  const std::string& name() const { return name_; }
  bool at_end() const { return at_end_; }
  // Appends bytes until `text` has `size` of them or more, or the input ends.
  void read(std::string& text, std::size_t size);
  // After the first read: what it came as.
  Compression compression() const { return compression_; }
  Encoding encoding() const { return encoding_; }

 private:
  std::size_t raw(char* out, std::size_t size);
  std::size_t plain(char* out, std::size_t size);
  void open();
  void look_at_head();
  void refuse_zeros(std::string_view text, std::uint64_t offset) const;

  std::string name_;
  bool standard_ = false;
  Descriptor file_;  // none: standard input
  std::string ending_;
  bool opened_ = false, raw_ended_ = false, at_end_ = false;
  Compression compression_ = Compression::none;
  Encoding encoding_ = Encoding::utf8;
  std::unique_ptr<Decompressor> decompressor_;
  std::string compressed_;         // read and not decompressed yet,
  std::size_t compressed_at_ = 0;  // from here on
  std::string head_;               // plain bytes that were looked at and not handed out yet
  std::string undecoded_;
  std::uint64_t offset_ = 0;  // of the text handed out
};

// Looks at the beginning of a file, so that a long run does not end at its last input: throws as InputBytes does.
// Returns its first bytes, decompressed. Not of what can be read only once (a pipe, a terminal): that is empty.
struct InputHead {
  std::string text;
  Compression compression = Compression::none;
};
InputHead look_at_input(const std::string& name);

}  // namespace strata::text
