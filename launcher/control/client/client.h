#pragma once
// launcher/control/client/ has the clients of a run's service: the calls, `strata ctl` and `strata top`.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/control/control.pb.h"

namespace strata::launcher::control {

namespace pb = strata::control::v1;

// The address to which a client connects, and its credentials: PEM texts and the secret, each of which may be empty.
struct Target {
  std::string address;  // in gRPC's notation: "unix:PATH", "HOST:PORT"
  bool tls = false;
  std::string ca, cert, key, token;
  // After this much silence, the other end is pinged and has the same time to answer.
  std::chrono::seconds silence{20};
  bool plain = false;  // the other end is known not to use TLS, because it is a socket or the run itself says so
};

// The run does not answer or has ended.
class Unavailable : public Error {
  using Error::Error;
};

// A client of the service Run. Calls throw Error{failed} with the service's own message, Unavailable if there is no
// service, or Error{usage} if the service refuses the token or the two sides disagree about TLS.
class Client {
 public:
  explicit Client(const Target& target);
  ~Client();

  pb::Status status();
  pb::Plan plan();
  pb::CheckpointReply checkpoint();  // returns when the checkpoint is durable
  pb::StopReply stop(bool at_once);
  pb::Dump dump();
  // Calls step(s) for each step until the run ends normally or step() returns false. Returns whether the run ended.
  bool watch(int last, const std::function<bool(const pb::Step&)>& step);
  // Ends watch(), both the call in progress and later ones. Any thread may call it.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct CtlOptions {
  std::string target;
  std::string token_file, ca, cert, key;  // paths; all but token_file name PEM files
  bool json = false, at_once = false;
};

// The run named by the options, and the credentials for it. Throws Error{usage}.
Target target_of(const CtlOptions& options);

// `strata ctl status|watch|checkpoint|stop|dump|plan`: asks the run and prints the answer. Returns the exit code.
int ctl(const std::string& what, const CtlOptions& options);

// If the options name a run that can be reached only from its own machine, runs the same command there over ssh and
// does not return. Throws Error{failed} if ssh cannot be started.
void run_on_its_host(const std::string& what, const CtlOptions& options);

// "step 120 of 1000, loss 3.2143, ...": the lines of `strata ctl status`.
std::string text_of(const pb::Status& status);
std::string text_of(const pb::Step& step, std::int64_t max_steps);
// The tier's name, as printed by the run at its start.
std::string title_of(const pb::Tier& tier, const pb::RunInfo& run);

// `strata top`: a live view of a run until it ends or q is pressed. Into a pipe, prints one line per second if
// something has changed. Returns the exit code.
int top(const CtlOptions& options);

struct Screen {
  int columns = 80, rows = 24;
  bool unicode = true;
};
// The view as lines that fit the screen, each with its line break. `steps` are the points of the loss curve.
std::string screen_text(const pb::Status& status, const std::vector<pb::Step>& steps, const Screen& screen);

}  // namespace strata::launcher::control
