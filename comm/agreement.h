#pragma once
#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace strata::comm {

// An error that every rank throws alike, after an exchange or from what all of them see: rank 0 alone prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Runs f() on every rank; where it throws on some, throws AgreedError of the lowest of them on all, naming it unless
// all failed alike. Collective, so f() must not be: a rank that fails in it would leave the others behind.
template <typename F>
void agree(World& world, F&& f) {
  std::string mine;
  try {
    f();
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    mine = std::to_string(static_cast<int>(exit_code(error))) + " " + error.what();
  }
  const std::vector<std::string> all = world.exchange(mine);
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  if (first == all.end()) return;
  const std::size_t space = first->find(' ');
  const bool alike = std::all_of(all.begin(), all.end(), [&](const std::string& text) { return text == *first; });
  throw AgreedError(static_cast<Exit>(std::stoi(first->substr(0, space))),
                    (alike ? "" : "rank " + std::to_string(first - all.begin()) + ": ") + first->substr(space + 1));
}

}  // namespace strata::comm
