#include "launcher/screen/printable_stream.h"

#include <string_view>

#include "launcher/screen/printable.h"

namespace strata::launcher {

PrintableStream::~PrintableStream() {
  to_ << printable(line_);
}

int PrintableStream::overflow(int c) {
  using Traits = std::streambuf::traits_type;
  if (Traits::eq_int_type(c, Traits::eof())) return Traits::not_eof(c);
  const char one = Traits::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : Traits::eof();
}

std::streamsize PrintableStream::xsputn(const char* text, std::streamsize size) {
  line_.append(text, static_cast<std::size_t>(size));
  if (const std::size_t last = line_.rfind('\n'); last != std::string::npos) {
    to_ << printable(std::string_view(line_).substr(0, last + 1), true);
    line_.erase(0, last + 1);
  }
  return to_ ? size : 0;
}

int PrintableStream::sync() {
  to_.flush();
  return to_ ? 0 : -1;
}

}  // namespace strata::launcher
