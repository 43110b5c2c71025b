#include "launcher/control/service/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {
namespace {

using testing::HasSubstr;
using tests::failure_of;

class CredentialsTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const auto path = folder_.write(name, text);
    chmod(path.c_str(), mode);
    return path.string();
  }
  tests::ScratchFolder folder_;
  runtime::Recipe::Control recipe_;
};

TEST_F(CredentialsTest, ReadsAMatchingPair) {
  const Credentials made = make_credentials();
  recipe_.tls_cert = write("cert", made.cert);
  recipe_.tls_key = write("key", made.key);
  recipe_.token_file = write("token", "!0123456789abcdef~\n");
  const Credentials read = read_credentials(recipe_);
  EXPECT_TRUE(read.tls());
  EXPECT_EQ(read.token, "!0123456789abcdef~");
}

TEST_F(CredentialsTest, RefusesTheKeyOfAnotherCertificate) {
  recipe_.tls_cert = write("cert", make_credentials().cert);
  recipe_.tls_key = write("key", make_credentials().key);
  const Error error = failure_of([&] { read_credentials(recipe_); });
  EXPECT_EQ(error.code(), Exit::usage);
  EXPECT_THAT(error.what(), HasSubstr("is not the key of the certificate in"));
}

TEST_F(CredentialsTest, RefusesFilesWithoutACertificateOrKey) {
  const Credentials made = make_credentials();
  recipe_.tls_cert = write("cert", "hello");
  recipe_.tls_key = write("key", made.key);
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("is not in PEM format"));
  recipe_.tls_cert = write("cert", made.key);
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("holds no certificate"));
  recipe_.tls_cert = write("cert", made.cert);
  recipe_.tls_key = write("key", made.cert);
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("holds no private key"));
  recipe_.tls_key = folder_.path() / "missing";
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("cannot be read: No such file"));
  recipe_.tls_key = std::nullopt;
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("control.tls_key is missing"));
}

TEST_F(CredentialsTest, DoesNotWaitForAPipe) {
  const std::filesystem::path pipe = folder_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  recipe_.token_file = pipe;
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(),
              HasSubstr("control.token_file: " + pipe.string() + " is not a regular file"));
}

TEST_F(CredentialsTest, RefusesATokenThatOthersCanRead) {
  for (const mode_t mode : {0640U, 0604U, 0644U}) {
    recipe_.token_file = write("token", "0123456789abcdef0123", mode);
    const Error error = failure_of([&] { read_credentials(recipe_); });
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_THAT(error.what(), HasSubstr("others can read")) << mode;
  }
  recipe_.token_file = write("short", "secret");
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("has 6 characters, but needs 16"));
  recipe_.token_file = write("lines", "0123456789abcdef\n0123456789abcdef");
  EXPECT_THAT(failure_of([&] { read_credentials(recipe_); }).what(), HasSubstr("must hold one line"));
}

TEST_F(CredentialsTest, RefusesAKeyThatOthersCanRead) {
  const Credentials made = make_credentials();
  recipe_.tls_cert = write("cert", made.cert, 0644);
  for (const mode_t mode : {0640U, 0604U, 0644U}) {
    const std::string key = write("key", made.key, mode);
    recipe_.tls_key = key;
    EXPECT_FAILURE(read_credentials(recipe_), Exit::usage,
                   HasSubstr("control.tls_key: others can read " + key +
                             fmt::format(" (mode {:03o}), so it is not a secret: chmod 600 it", mode)));
    EXPECT_FAILURE(read_key(key, "--key"), Exit::usage, HasSubstr("--key: others can read"));
  }
  recipe_.tls_key = write("key", made.key);
  EXPECT_EQ(read_credentials(recipe_).key, made.key);
}

TEST_F(CredentialsTest, MakesNewCredentialsEachTime) {
  const Credentials a = make_credentials(), b = make_credentials();
  EXPECT_NE(a.token, b.token);
  EXPECT_NE(a.key, b.key);
  EXPECT_EQ(a.token.size(), 64U);
}

TEST(SameSecretTest, ComparesSecrets) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "abcd"));
  EXPECT_FALSE(same_secret("", "a"));
}

}  // namespace
}  // namespace strata::launcher::control
