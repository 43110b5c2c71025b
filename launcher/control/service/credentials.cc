#include "launcher/control/service/credentials.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/files/descriptor.h"
#include "base/files/input_file.h"

namespace strata::launcher::control {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Bio = std::unique_ptr<BIO, FreeWith<BIO_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreeWith<X509_free>>;

// The text and the status of a file.
std::pair<std::string, struct stat> read_file(const std::string& path, std::string_view name) {
  const std::string named = fmt::format("{}: {}", name, path);
  const Descriptor file = open_input(path, named);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail(Exit::usage, "{} cannot be read: {}", named, std::strerror(errno));
  return {read_input(file, named, kMaxBytes), status};
}

Bio memory(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}
int no_password(char*, int, int, void*) {
  return 0;
}

std::string pem_of(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

// Throws if a user other than the owner can read the file.
void require_secret(const struct stat& status, const std::string& path, std::string_view name) {
  if ((status.st_mode & 077) != 0)
    fail(Exit::usage,
         "{}: others can read {} (mode {:03o}), so it is not a secret: chmod 600 it, and replace the secret", name,
         path, status.st_mode & 0777);
}

void require_pem(const std::string& text, const std::string& path, std::string_view name) {
  if (text.find("-----BEGIN ") == std::string::npos)
    fail(Exit::usage, "{}: {} is not in PEM format: convert it with openssl", name, path);
}

void require(bool well) {
  if (!well) fail(Exit::failed, "OpenSSL cannot make a certificate for the streams between nodes");
}

}  // namespace

std::string read_pem(const std::string& path, std::string_view name) {
  std::string text = read_file(path, name).first;
  require_pem(text, path, name);
  return text;
}

std::string read_key(const std::string& path, std::string_view name) {
  auto [text, status] = read_file(path, name);
  require_secret(status, path, name);
  require_pem(text, path, name);
  return text;
}

std::string read_token(const std::string& path, std::string_view name) {
  auto [text, status] = read_file(path, name);
  require_secret(status, path, name);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  if (text.size() < 16)
    fail(Exit::usage, "{}: the secret in {} has {} characters, but needs 16: openssl rand -hex 32 makes one", name,
         path, text.size());
  for (const char c : text)
    if (c <= ' ' || c > '~')
      fail(Exit::usage, "{}: {} must hold one line of printable ASCII characters without spaces", name, path);
  return text;
}

void require_pair(const Pem& cert, const Pem& key) {
  const Certificate x(PEM_read_bio_X509(memory(cert.text).get(), nullptr, &no_password, nullptr));
  if (!x) fail(Exit::usage, "{}: {} holds no certificate: name a PEM file with one", cert.name, cert.path);
  const Key k(PEM_read_bio_PrivateKey(memory(key.text).get(), nullptr, &no_password, nullptr));
  if (!k) fail(Exit::usage, "{}: {} holds no private key that can be read without a password", key.name, key.path);
  if (X509_check_private_key(x.get(), k.get()) != 1)
    fail(Exit::usage, "{}: {} is not the key of the certificate in {}", key.name, key.path, cert.path);
  if (X509_cmp_current_time(X509_get0_notAfter(x.get())) < 0)
    fail(Exit::usage, "{}: the certificate in {} has expired: renew it", cert.name, cert.path);
}

Credentials read_credentials(const runtime::Recipe::Control& recipe) {
  Credentials out;
  if (recipe.tls_cert.has_value() != recipe.tls_key.has_value())
    fail(Exit::usage, "control.tls_cert and control.tls_key go together: {} is missing",
         recipe.tls_cert ? "control.tls_key" : "control.tls_cert");
  if (recipe.tls_client_ca && !recipe.tls_cert)
    fail(Exit::usage, "control.tls_client_ca needs control.tls_cert and control.tls_key");
  if (recipe.token_file) out.token = read_token(recipe.token_file->string(), "control.token_file");
  if (!recipe.tls_cert) return out;
  out.cert = read_pem(recipe.tls_cert->string(), "control.tls_cert");
  out.key = read_key(recipe.tls_key->string(), "control.tls_key");
  require_pair({"control.tls_cert", recipe.tls_cert->string(), out.cert},
               {"control.tls_key", recipe.tls_key->string(), out.key});
  if (recipe.tls_client_ca) {
    out.client_ca = read_pem(recipe.tls_client_ca->string(), "control.tls_client_ca");
    if (!Certificate(PEM_read_bio_X509(memory(out.client_ca).get(), nullptr, &no_password, nullptr)))
      fail(Exit::usage, "control.tls_client_ca: {} holds no certificate: name a PEM file with one",
           recipe.tls_client_ca->string());
  }
  return out;
}

Credentials make_credentials() {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate cert(X509_new());
  require(key && cert);
  constexpr long kDay = 24 * 3600;
  unsigned char serial[8];
  require(RAND_bytes(serial, sizeof serial) == 1);
  std::uint64_t number = 0;
  std::memcpy(&number, serial, sizeof number);
  require(X509_set_version(cert.get(), 2) == 1);
  require(ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert.get()), number >> 1) == 1);
  // Valid since a week ago, because the nodes' clocks may differ.
  require(X509_gmtime_adj(X509_getm_notBefore(cert.get()), -7 * kDay) != nullptr);
  require(X509_gmtime_adj(X509_getm_notAfter(cert.get()), 3650 * kDay) != nullptr);
  X509_NAME* name = X509_get_subject_name(cert.get());
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("strata-run"), -1,
                                     -1, 0) == 1);
  require(X509_set_issuer_name(cert.get(), name) == 1 && X509_set_pubkey(cert.get(), key.get()) == 1);
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, cert.get(), cert.get(), nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, FreeWith<X509_EXTENSION_free>> names(
      X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, "DNS:strata-run"));
  require(names && X509_add_ext(cert.get(), names.get(), -1) == 1);
  require(X509_sign(cert.get(), key.get(), EVP_sha256()) != 0);
  Credentials out;
  const Bio cert_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509(cert_text.get(), cert.get()) == 1);
  require(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
  out.cert = pem_of(cert_text);
  out.key = pem_of(key_text);
  unsigned char secret[32];
  require(RAND_bytes(secret, sizeof secret) == 1);
  for (const unsigned char byte : secret) out.token += fmt::format("{:02x}", byte);
  return out;
}

bool same_secret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace strata::launcher::control
