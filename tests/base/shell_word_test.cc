#include "base/shell_word.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace strata {
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
       {"plain", "two words", "", "it's", "''", "$HOME `id` \\n \"x\" ; rm * > y", "-n", "a\nb", "a\n",
        "-\t\x7f%d\\n it's \"$x\"\r", "~/a", "a~", "a#b", "#a", "{a,b}", "a[1]", "h\xc3\xa9"})
    EXPECT_EQ(as_a_shell_reads(shell_word(word)), word + "|");
}

TEST(ShellWord, HasNoQuotesIfItNeedsNone) {
  EXPECT_EQ(shell_word("/runs/my-run_1.0"), "/runs/my-run_1.0");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ShellWord, PythonFindsPathsInItsArguments) {
  EXPECT_EQ(python_command("print(argv[1])", {"a/b", "it's \"c\" d"}),
            R"py(python3 -c "from sys import argv; print(argv[1])" a/b 'it'\''s "c" d')py");
}

TEST(ShellWord, HasNoControlCharacters) {
  EXPECT_EQ(shell_word("a\nb"), "\"$(printf -- 'a\\012b')\"");
}

}  // namespace
}  // namespace strata
