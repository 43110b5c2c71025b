#pragma once
#include <ostream>
#include <streambuf>
#include <string>

namespace strata::launcher {

// A stream that writes what it is given to another one, line by line, printable: whatever the names and paths in it.
class PrintableStream : private std::streambuf, public std::ostream {
 public:
  explicit PrintableStream(std::ostream& to) : std::ostream(this), to_(to) {}
  ~PrintableStream() override;
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

 private:
  int overflow(int c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

  std::ostream& to_;
  std::string line_;  // the last one, which has not ended yet
};

}  // namespace strata::launcher
