#pragma once
#include <string>
#include <string_view>

#include "runtime/recipe/recipe.h"

namespace strata::launcher::control {

// The service's own certificate and key, the authority for clients' certificates (PEM texts), and the secret that calls
// must carry. Each may be empty.
struct Credentials {
  std::string cert, key, client_ca, token;
  bool tls() const { return !cert.empty(); }
};

// Reads the files that control.tls_* and control.token_file name. Throws Error{usage} if a file is missing or is not a
// certificate or key, if the key belongs to another certificate, or if other users can read the key or the token.
Credentials read_credentials(const runtime::Recipe::Control& recipe);

// The secret in a file, for a service or a client. `name` is the key or option that names the file. Throws
// Error{usage}.
std::string read_token(const std::string& path, std::string_view name);
// The text of a file. Throws Error{usage}.
std::string read_pem(const std::string& path, std::string_view name);
// Like read_pem(), for a private key, which only its owner may be able to read.
std::string read_key(const std::string& path, std::string_view name);

// A PEM text, the file that contains it, and the key or option that names the file.
struct Pem {
  std::string_view name;
  std::string path;
  const std::string& text;
};
// Throws Error{usage} if the text is not a certificate or the certificate has expired, or if the key is invalid, needs
// a password, or belongs to another certificate.
void require_pair(const Pem& cert, const Pem& key);

// Creates a certificate, a key and a secret for the streams between this run's nodes. They are never written to a file.
Credentials make_credentials();

// Compares in constant time for texts of the same length.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace strata::launcher::control
