#include "launcher/tokenize.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <simdjson.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "device/error.h"
#include "launcher/atomic_file.h"
#include "runtime/tokens.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kPiece = std::size_t{1} << 18;
constexpr std::size_t kMaxLine = std::size_t{1} << 30;

// One input, read front to back.
class Input {
 public:
  explicit Input(const std::string& name) : name_(name == "-" ? "standard input" : name) {
    fd_ = name == "-" ? STDIN_FILENO : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) {
      fail(errno == ENOENT || errno == ENOTDIR ? Exit::usage : Exit::failed, "{} cannot be opened: {}", name_,
           std::strerror(errno));
    }
  }
  ~Input() {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const std::string& name() const { return name_; }
  // The next bytes, at most into.size(); empty at the end.
  std::span<const char> read(std::span<char> into) const {
    for (;;) {
      const ssize_t n = ::read(fd_, into.data(), into.size());
      if (n >= 0) return into.first(static_cast<std::size_t>(n));
      if (errno != EINTR) {
        fail(errno == EISDIR ? Exit::usage : Exit::failed, "{} cannot be read: {} (errno {})", name_,
             std::strerror(errno), errno);
      }
    }
  }

 private:
  std::string name_;
  int fd_;
};

// Tokens of bytes, on their way into OUT.bin.
class ByteTokens {
 public:
  explicit ByteTokens(AtomicFile& file) : file_(file), state_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  void add(std::span<const char> text) {
    while (!text.empty()) {
      const std::size_t n = std::min(text.size(), tokens_.size());
      // Widening a byte is the little-endian token on every machine that Strata runs on (x86-64).
      std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n), tokens_.begin(),
                     [](char c) { return std::uint16_t{static_cast<unsigned char>(c)}; });
      const auto bytes = std::as_bytes(std::span(tokens_).first(n));
      XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
      file_.write(bytes);
      count_ += n;
      text = text.subspan(n);
    }
  }
  std::uint64_t count() const { return count_; }
  std::string hash() const { return fmt::format("{:016x}", XXH3_64bits_digest(state_.get())); }

 private:
  AtomicFile& file_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
  std::array<std::uint16_t, kPiece> tokens_{};
  std::uint64_t count_ = 0;
};

// The "text" of each line.
class JsonLines {
 public:
  JsonLines(const std::string& name, ByteTokens& tokens) : name_(name), tokens_(tokens) {}

  void add(std::span<const char> piece) {
    while (!piece.empty()) {
      const auto end = std::find(piece.begin(), piece.end(), '\n');
      line_.append(piece.begin(), end);
      if (line_.size() > kMaxLine) bad("a line of at most 1 GiB", "a longer one");
      if (end == piece.end()) return;
      finish();
      piece = piece.subspan(static_cast<std::size_t>(end - piece.begin()) + 1);
    }
  }
  void finish() {
    if (line_.find_first_not_of(" \t\r") != std::string::npos) {
      simdjson::dom::element root;
      std::string_view text;
      const auto error = parser_.parse(line_).get(root);
      if (error != simdjson::SUCCESS) bad("a JSON object in a line", simdjson::error_message(error));
      if (root["text"].get_string().get(text) != simdjson::SUCCESS) bad("a string \"text\" in each line", "none");
      tokens_.add(text);
    }
    offset_ += line_.size() + 1;
    line_.clear();
  }

 private:
  [[noreturn]] void bad(std::string_view expected, std::string_view found) const {
    fail(Exit::corrupt, "{}, offset {}: expected {}, found {}", name_, offset_, expected, found);
  }

  const std::string& name_;
  ByteTokens& tokens_;
  simdjson::dom::parser parser_;
  std::string line_;
  std::uint64_t offset_ = 0;  // of the line, in the file
};

}  // namespace

int tokenize(const TokenizeOptions& options) {
  if (options.tokenizer != "byte") {
    fail(Exit::usage, "--tokenizer {} is not built yet: there is byte", options.tokenizer);
  }
  for (const std::string& name : options.inputs) {
    std::error_code ignored;
    if (name != "-" && fs::equivalent(name, options.out, ignored)) {
      fail(Exit::usage, "{} is both an input and the output", name);
    }
  }
  AtomicFile out(options.out), sidecar(runtime::sidecar_path(options.out));
  const auto tokens = std::make_unique<ByteTokens>(out);
  std::vector<char> buffer(kPiece);
  for (const std::string& name : options.inputs) {
    const Input input(name);
    JsonLines lines(input.name(), *tokens);
    const bool jsonl = name.ends_with(".jsonl");
    for (auto piece = input.read(buffer); !piece.empty(); piece = input.read(buffer)) {
      if (jsonl) {
        lines.add(piece);
      } else {
        tokens->add(piece);
      }
    }
    if (jsonl) lines.finish();
  }
  if (tokens->count() == 0) fail(Exit::usage, "there is no text in the input: an empty token file is of no use");
  sidecar.write(runtime::to_json({.vocab_size = 256,
                                  .width = sizeof(std::uint16_t),
                                  .tokenizer = options.tokenizer,
                                  .hash = tokens->hash(),
                                  .count = tokens->count()}));
  // An older sidecar goes first: between the two renames the tokens stand alone, and never beside another's.
  std::error_code error;
  fs::remove(runtime::sidecar_path(options.out), error);
  if (error) {
    fail(Exit::failed, "{} cannot be replaced: {}", runtime::sidecar_path(options.out).string(), error.message());
  }
  out.commit();
  sidecar.commit();
  fmt::print(stderr, "{}: {} tokens\n", options.out.string(), tokens->count());
  return 0;
}

}  // namespace strata::launcher
