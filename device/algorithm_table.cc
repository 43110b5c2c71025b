#include "device/algorithm_table.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cctype>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/input_file.h"

namespace strata::device {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "strata algorithms 1";
constexpr std::string_view kSeparator = ": ";

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::optional<std::string> from_hex(std::string_view hex) {
  if (hex.empty() || hex.size() % 2 != 0) return std::nullopt;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

const char* word(Epilogue epilogue) {
  constexpr const char* kWords[] = {"",        " gelu_tanh", " gelu_tanh_gradient", " gelu_erf", " gelu_erf_gradient",
                                    " sums_a", " sums_b"};
  static_assert(std::size(kWords) == static_cast<std::size_t>(Epilogue::sums_b) + 1);
  return kWords[static_cast<std::size_t>(epilogue)];
}

}  // namespace

std::string AlgorithmKey::text() const {
  const ProductShape& s = shape;
  return fmt::format("{}x{}x{} {}{} {}x{}x{} {} {}{}{}{} {}", s.m, s.n, s.k, s.transpose_a ? 'T' : 'N',
                     s.transpose_b ? 'T' : 'N', s.lda, s.ldb, s.ldc, name_of(s.in), name_of(s.out),
                     s.bias ? " bias" : "", s.accumulate ? " accumulate" : "", word(s.epilogue), alignment);
}

const std::string* AlgorithmTable::find(const AlgorithmKey& key) const {
  const auto at = lines_.find(key.text());
  return at == lines_.end() ? nullptr : &at->second;
}

void AlgorithmTable::set(const AlgorithmKey& key, std::string algorithm) {
  lines_.insert_or_assign(key.text(), std::move(algorithm));
}

std::string AlgorithmTable::text() const {
  std::string text = fmt::format("{}\n{}\n", kTitle, machine_);
  for (const auto& [key, algorithm] : lines_)
    text += fmt::format("{}{}{}\n", key, kSeparator, algorithm == kApart ? algorithm : to_hex(algorithm));
  return text;
}

std::uint64_t AlgorithmTable::hash() const {
  const std::string all = text();
  return XXH3_64bits(all.data(), all.size());
}

AlgorithmTable AlgorithmTable::parse(std::string_view text, const std::string& origin) {
  std::istringstream lines{std::string(text)};
  std::string line, machine;
  if (!std::getline(lines, line) || line != kTitle || !std::getline(lines, machine) || machine.empty())
    fail(Exit::corrupt, "{} is not a table of algorithms: delete it; the next run writes a new one", origin);
  AlgorithmTable table(machine);
  for (int number = 3; std::getline(lines, line); ++number) {
    const std::size_t at = line.rfind(kSeparator);
    const std::string_view value =
        at == std::string::npos ? std::string_view() : std::string_view(line).substr(at + kSeparator.size());
    const auto algorithm = value == kApart ? std::string(kApart) : from_hex(value);
    if (!algorithm || at == 0 || lines.eof())  // a last line without a line end was cut off
      fail(Exit::corrupt,
           "{}:{}: this is not an algorithm of a product: delete the file; the next run writes a new one", origin,
           number);
    table.lines_.insert_or_assign(line.substr(0, at), *algorithm);
  }
  return table;
}

fs::path algorithm_file(const std::string& machine) {
  const auto environment = [](const char* name) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread sets it
    return std::string(value ? value : "");
  };
  if (const std::string file = environment("STRATA_ALGORITHMS"); !file.empty()) return file;
  fs::path cache = environment("XDG_CACHE_HOME");
  if (!cache.is_absolute()) {
    const std::string home = environment("HOME");
    if (home.empty()) return {};
    cache = fs::path(home) / ".cache";
  }
  std::string name;
  for (const char c : machine) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
    if (plain)
      name += c;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return cache / "strata" / "algorithms" / (name + ".txt");
}

AlgorithmTable load_algorithms(const fs::path& file, const std::string& machine) {
  std::error_code ignored;
  if (file.empty() || !fs::exists(file, ignored)) return AlgorithmTable(machine);
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  AlgorithmTable table = AlgorithmTable::parse(read_input(file, file.string(), kMaxBytes), file.string());
  if (table.machine() != machine)
    fail(Exit::usage, "{} holds the algorithms of {}, but this is {}: set STRATA_ALGORITHMS to another file",
         file.string(), table.machine(), machine);
  return table;
}

// Writes the file completely or not at all: another process may be reading or writing it.
void save_algorithms(const AlgorithmTable& table, const fs::path& file) {
  std::error_code error;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), error);
  try {
    AtomicFile out(file);
    out.write(table.text());
    out.commit();
  } catch (const Error& refused) {
    // Unless STRATA_ALGORITHMS is set, the user did not name this file, so it is not a usage error.
    const Exit code = refused.code() == Exit::usage ? Exit::failed : refused.code();
    throw Error(code, fmt::format("{} (set STRATA_ALGORITHMS to use another file)", refused.what()));
  }
}

}  // namespace strata::device
