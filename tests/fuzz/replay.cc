// Runs a fuzz target without libFuzzer: every file of a corpus folder, then N mutations of them, the same on every run.
//     recipe_fuzz CORPUS [MUTATIONS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kMaxBytes = 1 << 16;

class Mutator {
 public:
  explicit Mutator(std::vector<Bytes> seeds) : seeds_(std::move(seeds)) {}

  Bytes next() {
    Bytes out = seeds_[below(seeds_.size())];
    for (std::size_t n = 1 + below(4); n > 0; --n) change(out);
    if (out.size() > kMaxBytes) out.resize(kMaxBytes);
    return out;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

  void change(Bytes& bytes) {
    const auto at = [&] { return bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size() + 1)); };
    switch (below(8)) {
      case 0:  // one bit
        if (!bytes.empty()) bytes[below(bytes.size())] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:  // one byte
        if (!bytes.empty()) bytes[below(bytes.size())] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        bytes.erase(at(), bytes.end());
        break;   // cut
      case 3: {  // a hole
        const auto begin = at();
        bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(below(static_cast<std::size_t>(bytes.end() - begin))));
        break;
      }
      case 4: {  // a part of another seed
        const Bytes& other = seeds_[below(seeds_.size())];
        const std::size_t from = below(other.size()), count = below(other.size() - from);
        bytes.insert(at(), other.begin() + static_cast<std::ptrdiff_t>(from),
                     other.begin() + static_cast<std::ptrdiff_t>(from + count));
        break;
      }
      case 5: {  // one byte many times: nesting, long numbers
        static constexpr char kBytes[] = "[{\"0919.-,:=\\\n]}\xff";
        bytes.insert(at(), 1 + below(3000), static_cast<std::uint8_t>(kBytes[below(sizeof(kBytes))]));
        break;
      }
      case 6: {  // a telling number, as eight bytes
        static constexpr std::uint64_t kNumbers[] = {0, 1, 7, 0x7fffffff, 0xffffffff, ~0ull, ~0ull - 7, 1ull << 63};
        const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
        for (std::size_t i = 0; i < 8 && i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(number >> 8 * i);
        break;
      }
      default: {  // a digit
        std::vector<std::size_t> digits;
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          if (bytes[i] >= '0' && bytes[i] <= '9') digits.push_back(i);
        }
        if (!digits.empty()) bytes[digits[below(digits.size())]] = static_cast<std::uint8_t>('0' + below(10));
      }
    }
  }

  std::vector<Bytes> seeds_;
  std::mt19937_64 random_{20240520};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "%s CORPUS [MUTATIONS]\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> names;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) names.push_back(entry.path());
  std::sort(names.begin(), names.end());  // a folder lists its files in no particular order
  std::vector<Bytes> seeds;
  for (const auto& name : names) {
    std::ifstream file(name, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(seeds.back().data(), seeds.back().size());
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "%s holds no corpus\n", argv[1]);
    return 2;
  }
  const long mutations = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 10000;
  Mutator mutator(seeds);
  for (long i = 0; i < mutations; ++i) {
    const Bytes input = mutator.next();
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu seeds, %ld mutations\n", seeds.size(), mutations);
  return 0;
}
