#include "runtime/data/files/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
using Narrow = std::vector<std::uint16_t>;
using Wide = std::vector<std::uint32_t>;

std::string header_of(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

Wide all(const TokenFile& file) {
  Wide out(file.count());
  file.read(0, out);
  return out;
}

class TokensTest : public testing::Test {
 protected:
  void expect_corrupt(const std::string& bytes, std::int64_t vocab, std::uint64_t offset, const std::string& expected,
                      const std::string& found) {
    const auto path = folder_.write("t.bin", bytes);
    EXPECT_FAILURE(TokenFile(path, vocab).check_all(), Exit::corrupt,
                   AllOf(HasSubstr(path.string()), HasSubstr("offset " + std::to_string(offset) + ":"),
                         HasSubstr("expected " + expected), HasSubstr("found " + found)));
  }
  tests::ScratchFolder folder_;
};

// Compares with counting token by token, for lengths around those of blocks.
TEST_F(TokensTest, CountsTokensOutsideTheSets) {
  EXPECT_TRUE(rc::check([this] {
    const bool wide = *rc::gen::arbitrary<bool>();
    const std::uint32_t limit = wide ? 70010 : 65536;
    const auto near = *rc::gen::element<std::uint64_t>(1, 17, 40, 70000);
    const auto count = near + *rc::gen::inRange<std::uint64_t>(0, 20);
    const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1000);
    Wide tokens(count);
    for (std::uint64_t i = 0; i < count; ++i)
      tokens[i] = static_cast<std::uint32_t>((i * seed * 7919 + i / 3) % (i % 3 == 0 ? limit : 8));
    const auto path = folder_.write("c.bin", wide ? bytes_of(tokens) : bytes_of(Narrow(tokens.begin(), tokens.end())));
    const TokenFile file(path, wide ? 70010 : 65535);
    const std::vector<TokenRange> sets = {{0, 0}, {3, 4}, {60000, 65534}, {65535, 65535}, {70000, 70005}};
    const auto outside = [&](std::uint32_t token) {
      return std::ranges::none_of(sets, [&](const auto& set) { return token >= set.first && token <= set.last; });
    };
    const auto begin = *rc::gen::inRange<std::uint64_t>(0, count);
    const auto mine = std::span(tokens).subspan(begin);
    const auto expected = static_cast<std::uint64_t>(std::ranges::count_if(mine, outside));
    RC_ASSERT(file.count_outside(begin, mine.size(), sets) == expected);
    RC_ASSERT(file.any_outside(begin, mine.size(), sets) == (expected > 0));
    RC_ASSERT(file.count_outside(begin, mine.size(), {}) == mine.size());
  }));
}

TEST_F(TokensTest, WidthFollowsTheVocabulary) {
  const auto narrow = folder_.write("n.bin", bytes_of(Narrow{1, 2, 65534}));
  EXPECT_THAT(all(TokenFile(narrow, 65535)), ElementsAre(1, 2, 65534));
  const auto wide = folder_.write("w.bin", bytes_of(Wide{1, 70000}));
  EXPECT_THAT(all(TokenFile(wide, 128256)), ElementsAre(1, 70000));
  EXPECT_EQ(TokenFile(wide, 65536).width(), 4);
  EXPECT_EQ(TokenFile(narrow, std::nullopt).width(), 2);
}

// A run on such a file would also train on masked tokens.
TEST_F(TokensTest, RefusesAMaskWithoutASidecar) {
  const auto path = folder_.write("m.bin", bytes_of(Narrow{1, 2, 3}));
  (void)TokenFile(path, 100);
  folder_.write("m.bin.mask", "\x07");
  EXPECT_FAILURE(TokenFile(path, 100), Exit::corrupt, HasSubstr("m.bin.json does not name it"));
}

TEST_F(TokensTest, ReadsLlmcFiles) {
  const auto narrow = folder_.write("n.bin", header_of(20240520, 1, 3) + bytes_of(Narrow{5, 6, 7}));
  EXPECT_TRUE(TokenFile(narrow, 100).has_header());
  EXPECT_THAT(all(TokenFile(narrow, 100)), ElementsAre(5, 6, 7));
  const auto wide = folder_.write("w.bin", header_of(20240801, 7, 2) + bytes_of(Wide{5, 70000}));
  EXPECT_THAT(all(TokenFile(wide, 128256)), ElementsAre(5, 70000));
}

TEST_F(TokensTest, RefusesBadFilesWithFileOffsetAndValue) {
  expect_corrupt("", 100, 0, "tokens", "an empty file");
  expect_corrupt("abc", 100, 2, "whole tokens of 2 bytes", "1 bytes");
  expect_corrupt("abcdef", 70000, 4, "whole tokens of 4 bytes", "2 bytes");
  expect_corrupt(bytes_of(Narrow{1, 2, 100}), 100, 4, "a token below 100", "100");
  expect_corrupt(bytes_of(Wide{1, 2, 70000}), 70000, 8, "a token below 70000", "70000");
  expect_corrupt(header_of(20240520, 1, 3) + bytes_of(Narrow{1, 2}), 100, 8, "3 tokens of 2 bytes", "4 bytes");
  expect_corrupt(header_of(20240520, 1, 0), 100, 8, "0 tokens", "0 bytes");
  expect_corrupt(header_of(20240520, 1, -1) + bytes_of(Narrow{1, 2}), 100, 8, "4294967295 tokens", "4 bytes");
  expect_corrupt(header_of(20240520, 1, 2) + bytes_of(Narrow{1, 200}), 100, 1026, "a token below 100", "200");
  EXPECT_FAILURE(TokenFile(folder_.path() / "none.bin", 100), Exit::usage, HasSubstr("none.bin"));
  EXPECT_FAILURE(TokenFile(folder_.path(), 100), Exit::usage, HasSubstr("not a regular file"));
}

TEST_F(TokensTest, EveryReadChecksTokens) {
  Narrow tokens(10000, 1);
  tokens[9000] = 256;
  const TokenFile file(folder_.write("t.bin", bytes_of(tokens)), 256);
  Wide out(100);
  file.read(8900, out);
  EXPECT_FAILURE(file.read(8901, out), Exit::corrupt, AllOf(HasSubstr("offset 18000"), HasSubstr("found 256")));
  EXPECT_FAILURE(file.check_all(), Exit::corrupt, HasSubstr("offset 18000"));
}

TEST_F(TokensTest, TheSidecarMustAgree) {
  const auto path = folder_.write("t.bin", bytes_of(Narrow{1, 2, 3}));
  const std::string tokens = bytes_of(Narrow{1, 2, 3});
  const std::string hash = fmt::format("{:016x}", XXH3_64bits(tokens.data(), tokens.size()));
  const TokenSidecar good = {.vocab_size = 256, .width = 2, .tokenizer = "by\"te", .hash = hash, .count = 3};
  folder_.write("t.bin.json", to_json(good));
  const TokenFile file(path, 70000);  // its width would be 4 without the sidecar
  file.check_all();
  EXPECT_THAT(all(file), ElementsAre(1, 2, 3));
  EXPECT_EQ(file.sidecar()->tokenizer, "by\"te");
  EXPECT_FALSE(file.sidecar()->documents || file.sidecar()->mask);

  EXPECT_FAILURE(TokenFile(path, 97), Exit::usage, AllOf(HasSubstr("vocabulary of 256"), HasSubstr("has 97")));

  const auto refused = [&](auto change, const std::string& words) {
    TokenSidecar bad = good;
    change(bad);
    folder_.write("t.bin.json", to_json(bad));
    EXPECT_FAILURE(TokenFile(path, 256).check_all(), Exit::corrupt, AllOf(HasSubstr("t.bin"), HasSubstr(words)));
  };
  refused([](auto& s) { s.count = 4; }, "expected 4 tokens of 2 bytes");
  refused([](auto& s) { s.width = 4; }, "whole tokens of 4 bytes");
  refused([](auto& s) { s.width = 3; }, "2 or 4");
  refused([](auto& s) { s.vocab_size = 3; }, "below 3 (vocab_size of its sidecar)");
  refused([](auto& s) { s.vocab_size = 0; }, "vocab_size");
  refused([](auto& s) { s.hash = "0123456789abcdef"; }, "hash");
  refused([](auto& s) { s.documents = {4, ""}; }, "documents: count up to 3 and hash");
  refused([](auto& s) { s.mask = {4, ""}; }, "mask: labels up to 3 and hash");
  for (const char* text : {"", "[]", "{\"count\": \"3\"}", "{\"width\":2,\"vocab_size\":1e3,\"count\":3}",
                           "{\"width\":2,\"vocab_size\":256,\"count\":3,\"mask\":true}"}) {
    folder_.write("t.bin.json", text);
    EXPECT_FAILURE(TokenFile(path, 256), Exit::corrupt, HasSubstr("t.bin.json"));
  }
}

// Without its sidecar a file of 4-byte tokens would be read as one of 2-byte tokens.
TEST_F(TokensTest, ABrokenLinkIsNotAnAbsentSidecar) {
  const auto path = folder_.write("t.bin", bytes_of(Wide{1, 2}));
  const auto refused = [&](const std::string& target, const std::string& reason) {
    std::filesystem::remove(sidecar_path(path));
    std::filesystem::create_symlink(target, sidecar_path(path));
    EXPECT_FAILURE(TokenFile(path, 100), Exit::usage,
                   AllOf(HasSubstr("t.bin.json is a broken link"), HasSubstr(reason)));
  };
  refused("gone.json", "No such file");
  refused("t.bin.json", "Too many levels of symbolic links");
  folder_.write("kept.json", to_json({.vocab_size = 100, .width = 4, .count = 2}));
  std::filesystem::remove(sidecar_path(path));
  std::filesystem::create_symlink("kept.json", sidecar_path(path));
  EXPECT_THAT(all(TokenFile(path, 100)), ElementsAre(1, 2));
}

TEST_F(TokensTest, AnInaccessibleFileIsNotMissing) {
  std::filesystem::create_symlink("loop", folder_.path() / "loop");
  const auto expanded = [&](const std::string& pattern) {
    const std::vector<std::string> patterns = {folder_.path().string() + "/" + pattern};
    return expand_patterns(patterns, "data.train");
  };
  EXPECT_FAILURE(expanded("loop/a.bin"), Exit::failed,
                 AllOf(HasSubstr("data.train"), HasSubstr("a.bin cannot be opened: Too many levels")));
  EXPECT_FAILURE(expanded("none/*.bin"), Exit::usage, HasSubstr("no file matches"));
  EXPECT_FAILURE(expanded("t.bin/*"), Exit::usage, HasSubstr("no file matches"));

  folder_.write("locked/a.bin", "ab");
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  folder_.write("unlisted/a.bin", "ab");
  std::filesystem::permissions(folder_.path() / "locked", std::filesystem::perms::none);
  std::filesystem::permissions(folder_.path() / "unlisted", std::filesystem::perms(0111));
  constexpr uid_t kNobody = 65534;  // root can read everything, so the test changes its user
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(root ? ::seteuid(kNobody) : 0, 0);
  const Error name = tests::failure_of([&] { expanded("locked/a.bin"); });
  const Error pattern = tests::failure_of([&] { expanded("unlisted/*.bin"); });
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  for (const char* locked : {"locked", "unlisted"})
    std::filesystem::permissions(folder_.path() / locked, std::filesystem::perms::owner_all);
  EXPECT_FAILURE(throw name, Exit::failed, HasSubstr("locked/a.bin cannot be opened: Permission denied"));
  EXPECT_FAILURE(throw pattern, Exit::failed, HasSubstr("unlisted/*.bin cannot be read: Permission denied"));
}

TEST_F(TokensTest, RefusesAFolder) {
  folder_.write("adapter/adapter_config.json", "{}");
  const std::vector<std::string> patterns = {(folder_.path() / "adapter").string()};
  EXPECT_FAILURE((void)expand_patterns(patterns, "data.train"), Exit::usage,
                 AllOf(HasSubstr("adapter is a folder"), HasSubstr("adapter/*.bin")));
}

TEST_F(TokensTest, RefusesAHeaderThatContradictsItsSidecar) {
  const auto path = folder_.write("t.bin", header_of(20240520, 1, 3) + bytes_of(Narrow{1, 2, 3}));
  folder_.write("t.bin.json", to_json({.vocab_size = 256, .width = 2, .tokenizer = "byte", .hash = "", .count = 3}));
  EXPECT_EQ(TokenFile(path, 256).count(), 3u);
  folder_.write("t.bin.json", to_json({.vocab_size = 256, .width = 2, .tokenizer = "byte", .hash = "", .count = 5}));
  EXPECT_FAILURE(TokenFile(path, 256), Exit::corrupt, AllOf(HasSubstr("expected 5 tokens"), HasSubstr("found 3")));
}

TEST_F(TokensTest, GlobsExpandInByteOrderWithoutSidecars) {
  for (const char* name : {"b.bin", "a.bin", "a.bin.json", "a.bin.documents", "a.bin.mask", "B.bin", "[x].bin"})
    folder_.write(name, "{}");
  const auto names = [&](std::vector<std::string> patterns) {
    for (auto& p : patterns) p = folder_.path().string() + "/" + p;
    std::vector<std::string> out;
    for (const auto& path : expand_patterns(patterns, "data.train")) out.push_back(path.filename().string());
    return out;
  };
  EXPECT_THAT(names({"*"}), ElementsAre("B.bin", "[x].bin", "a.bin", "b.bin"));
  EXPECT_THAT(names({"b.bin", "[ab].bin"}), ElementsAre("b.bin", "a.bin", "b.bin"));
  EXPECT_THAT(names({"[x].bin"}), ElementsAre("[x].bin"));
  EXPECT_FAILURE(names({"*.tok"}), Exit::usage, AllOf(HasSubstr("data.train"), HasSubstr("*.tok")));
}

TEST_F(TokensTest, OpeningChecksCompleteFiles) {
  folder_.write("a.bin", bytes_of(Narrow{1, 2}));
  folder_.write("b.bin", bytes_of(Narrow{1, 300}));
  const std::vector<std::string> both = {folder_.path().string() + "/*.bin"};
  std::vector<comm::FileFingerprint> seen;
  EXPECT_EQ(open_token_files(both, "data.train", 301, seen).size(), 2u);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_FAILURE(open_token_files(both, "data.train", 256, seen), Exit::corrupt,
                 AllOf(HasSubstr("b.bin, offset 2"), HasSubstr("300")));
}

}  // namespace
}  // namespace strata::runtime
