#include "base/quote.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

namespace strata {
namespace {

TEST(Beginning, NeverCutsACharacter) {
  EXPECT_EQ(beginning_of("abc", 5), "abc");
  EXPECT_EQ(beginning_of("abc", 3), "abc");
  EXPECT_EQ(beginning_of("abc", 2), "ab");
  EXPECT_EQ(beginning_of("aéz", 3), "aé");
  EXPECT_EQ(beginning_of("aéz", 2), "a");
  EXPECT_EQ(beginning_of("a😀", 5), "a😀");
  for (const std::size_t bytes : {1u, 2u, 3u, 4u}) EXPECT_EQ(beginning_of("a😀", bytes), "a");
  EXPECT_EQ(beginning_of("é", 1), "");
  EXPECT_EQ(beginning_of("é", 0), "");
  EXPECT_EQ(beginning_of("", 0), "");
}

TEST(Beginning, AShortenedExcerptEndsWithDots) {
  EXPECT_EQ(excerpt("aéz", 4), "aéz");
  EXPECT_EQ(excerpt("aéz", 3), "aé...");
  EXPECT_EQ(excerpt("aéz", 2), "a...");
  EXPECT_EQ(excerpt("", 0), "");
}

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
