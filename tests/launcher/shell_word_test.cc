#include "launcher/shell_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace strata::launcher {
namespace {

std::string as_a_shell_reads(const std::string& word) {
  struct Close {
    void operator()(FILE* pipe) const { ::pclose(pipe); }
  };
  const std::unique_ptr<FILE, Close> pipe(::popen(("printf '%s|' " + word).c_str(), "r"));
  std::string out;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe.get())) out += part.data();
  return out;
}

TEST(ShellWord, IsOneWordThatMeansItself) {
  for (const std::string word :
       {"plain", "two words", "", "it's", "''", "$HOME `id` \\n \"x\" ; rm * > y", "-n", "a\nb"})
    EXPECT_EQ(as_a_shell_reads(shell_word(word)), word + "|");
}

}  // namespace
}  // namespace strata::launcher
