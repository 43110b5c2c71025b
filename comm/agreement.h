#pragma once
#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "base/abort.h"
#include "base/error.h"
#include "base/host/host.h"
#include "comm/communicator.h"

namespace strata::comm {

// An error that every rank throws with the same message, after an exchange or because all ranks see its cause. Only
// rank 0 prints it.
class AgreedError : public Error {
 public:
  using Error::Error;
  AgreedError(Exit code, const std::string& message, EndReason reason) : Error(code, message), reason_(reason) {}
  EndReason reason() const { return reason_; }

 private:
  EndReason reason_;
};

// Runs f() on every rank. If it throws on some, all ranks throw the lowest failing rank's error as an AgreedError,
// which names that rank (and its node, if there are several) unless all ranks failed identically. This call is
// collective, so f() must not be: a rank that fails in it would leave the others waiting.
template <typename F>
void agree(World& world, F&& f) {
  std::string mine;
  try {
    f();
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    mine = std::to_string(static_cast<int>(exit_code(error))) + " " + host_name() + " " + error.what();
  }
  const std::vector<std::string> all = world.exchange(mine);
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  if (first == all.end()) return;
  const auto what = [](const std::string& text) { return text.substr(text.find(' ', text.find(' ') + 1) + 1); };
  const bool same = std::all_of(all.begin(), all.end(),
                                [&](const std::string& text) { return !text.empty() && what(text) == what(*first); });
  const std::size_t code_end = first->find(' '), host_end = first->find(' ', code_end + 1);
  std::string who = "rank " + std::to_string(first - all.begin());
  if (world.node_size() < world.size()) who += " on " + first->substr(code_end + 1, host_end - code_end - 1);
  throw AgreedError(static_cast<Exit>(std::stoi(*first)), (same ? "" : who + ": ") + what(*first));
}

}  // namespace strata::comm
