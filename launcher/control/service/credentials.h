#pragma once
#include <string>
#include <string_view>

#include "runtime/recipe/recipe.h"

namespace strata::launcher::control {

// Who the service is, and whom it believes: PEM texts, and a secret that calls must bring along; empty if there is
// none.
struct Credentials {
  std::string cert, key, client_ca, token;
  bool tls() const { return !cert.empty(); }
};

// What control.tls_* and control.token_file name. Throws Error{usage} in one sentence: a file is missing or is no
// certificate or key, the key is another certificate's, others can read the key or the token.
Credentials read_credentials(const runtime::Recipe::Control& recipe);

// The secret in the file, for a service or a client. Throws Error{usage}; `name` is the key or option that names it.
std::string read_token(const std::string& path, std::string_view name);
// The file's text. Throws Error{usage}.
std::string read_pem(const std::string& path, std::string_view name);
// Likewise, of a private key, which nobody but its owner may read.
std::string read_key(const std::string& path, std::string_view name);

// A PEM text, where it is from, and the key or option that names that.
struct Pem {
  std::string_view name;
  std::string path;
  const std::string& text;
};
// Throws Error{usage} if one is no certificate, no key that can be read without a password, or the key of another
// certificate, or the certificate has expired.
void require_pair(const Pem& cert, const Pem& key);

// A certificate and key of this run alone, for the streams between its nodes, and a secret. Of memory, never a file's.
Credentials make_credentials();

// Takes as long for any two texts of one length.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace strata::launcher::control
