#pragma once
// text/input/ turns the bytes of an input into text: it opens them, decompresses them (decompressor.cc), and converts
// them to UTF-8. It refuses a file that is not text, and names its kind (file_signature.h). Open this header first.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/files/descriptor.h"
#include "text/input/file_signature.h"

namespace strata::text {

enum class Compression : std::uint8_t { none, gzip, zstd, xz, bzip2 };
// "gzip"; "" for `none`.
std::string_view name_of(Compression compression);
// The compression, from the first bytes of a file; six are enough.
Compression compression_of(std::string_view head);

// A fault in a compressed stream; the caller adds the place.
struct StreamFault {
  std::string message;
};

// Decompresses a stream piece by piece in constant memory: all its members or frames, one after another.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Takes bytes from the front of `in` and fills `out` from its front. Returns the number of bytes written; if that is
  // 0, call it again with more input. last: nothing follows `in`. Throws StreamFault if the stream is damaged or ends
  // inside a member.
  virtual std::size_t run(std::string_view& in, std::span<char> out, bool last) = 0;
};
// `compression` must not be Compression::none.
std::unique_ptr<Decompressor> make_decompressor(Compression compression);

// The kind of content that a file's name suggests: its last extension in lower case, not counting that of a
// compression: "jsonl" for "A.JSONL.gz". Empty if there is none.
std::string content_extension(std::string_view name);

// The text of an input, from front to back. Input that begins like gzip, zstd, xz or bzip2 is decompressed. Input with
// a byte order mark of UTF-16 or UTF-32 is converted to UTF-8. Byte order marks are removed. Throws Error{usage} if the
// file is missing or is not text (and names its kind); Error{corrupt}, with the name, if the compressed or encoded data
// is damaged or ends too early; Error{failed} if it cannot be read.
class InputBytes {
 public:
  // Opens the file, but does not read it; "-" is standard input.
  explicit InputBytes(const std::string& name);

  const std::string& name() const { return name_; }
  bool at_end() const { return at_end_; }
  // Appends bytes until `text` has at least `size` of them or the input ends.
  void read(std::string& text, std::size_t size);
  // Valid after the first read.
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
  Descriptor file_;  // empty for standard input
  std::string extension_;
  bool opened_ = false, raw_ended_ = false, at_end_ = false;
  Compression compression_ = Compression::none;
  Encoding encoding_ = Encoding::utf8;
  std::unique_ptr<Decompressor> decompressor_;
  std::string compressed_;         // stored bytes that were read ahead
  std::size_t compressed_at_ = 0;  // the first of them that is not decompressed yet
  std::string head_;               // plain bytes that were inspected but not handed out yet
  std::string undecoded_;
  std::uint64_t offset_ = 0;  // position in the text handed out
};

// Checks the beginning of a file, so that a long run does not fail at its last input. Throws as InputBytes does.
// Returns the first bytes, decompressed; empty for an input that can be read only once (a pipe or a terminal).
struct InputHead {
  std::string text;
  Compression compression = Compression::none;
};
InputHead look_at_input(const std::string& name);

}  // namespace strata::text
