#include "launcher/control/client/client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/host/host.h"
#include "launcher/control/control.grpc.pb.h"
#include "launcher/control/service/grpc_setup.h"
#include "launcher/control/service/listener.h"

namespace strata::launcher::control {
namespace {

constexpr std::chrono::seconds kAnswer{10};  // the limit for calls that are answered immediately

// Whether the other end accepted the connection and closed it before sending anything.
bool was_refused(const std::string& words) {
  const auto says = [&](const char* part) { return words.find(part) != words.npos; };
  return says("failed to connect") && (says("Socket closed") || says("Broken pipe") || says("Connection reset"));
}

// Advice if the two sides reach each other but disagree about TLS or certificates; nullptr for other problems.
const char* advice(const std::string& words, const Target& target) {
  const auto says = [&](const char* part) { return words.find(part) != words.npos; };
  if (says("certificate verify failed"))
    return "its certificate has expired, or no authority trusted here has signed it: give the authority's with --ca";
  if (says("is not in peer certificate"))
    return "its certificate is for another name: use a name that it contains (openssl x509 -noout -ext subjectAltName)";
  if (says("wrong version number")) return "it does not use TLS: leave out --ca, --cert and --key";
  if (was_refused(words) && !target.plain)
    return target.tls
               ? "connection closed. If the run sets control.tls_client_ca, pass a client certificate (--cert, --key); "
                 "otherwise it is ending or has too many connections: retry in 10 s"
               : "connection closed. If the run uses TLS, pass --ca CERT; otherwise it has too many connections: retry "
                 "in 10 s";
  return nullptr;
}

// Why no connection was made, if nothing is at the address: "there is no socket PATH on HOST". Otherwise empty.
std::string absence(const std::string& words, const std::string& address) {
  const auto says = [&](const char* part) { return words.find(part) != words.npos; };
  if (!says("failed to connect")) return "";
  const std::string nothing = fmt::format("nothing listens at {}", address);
  constexpr std::string_view kUnix = "unix:";
  if (!address.starts_with(kUnix)) return says("Connection refused") ? nothing : "";
  const std::string path = address.substr(kUnix.size());
  const int error = error_of_connecting(path);
  if (error == ENOENT || error == ENOTDIR) return fmt::format("there is no socket {} on {}", path, host_name());
  return error == ECONNREFUSED ? nothing : "";
}

[[noreturn]] void refused(const grpc::Status& status, const Target& target) {
  const std::string& address = target.address;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
      fail(Exit::usage, "{} refuses: {}", address, status.error_message());
    case grpc::StatusCode::CANCELLED:  // the run has ended: a client never cancels such a call itself
    case grpc::StatusCode::UNAVAILABLE:
      if (const char* to_do = advice(status.error_message(), target)) fail(Exit::usage, "{}: {}", address, to_do);
      if (target.plain && was_refused(status.error_message()))
        throw Unavailable(
            Exit::failed,
            fmt::format("{}: connection closed: the run is ending or has too many connections; retry in 10 s",
                        address));
      if (const std::string why = absence(status.error_message(), target.address); !why.empty())
        throw Unavailable(
            Exit::failed,
            fmt::format("{}: the run has ended, or listens elsewhere: give its checkpoint.dir, the address "
                        "that it printed after \"control\" at its start, or no TARGET for the only run of "
                        "this user here",
                        why));
      throw Unavailable(Exit::failed,
                        fmt::format("{} does not answer, or has ended: {}", address, status.error_message()));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      fail(Exit::failed, "{} has not answered for {} s", address, kAnswer.count());
    default:
      fail(Exit::failed, "{}", status.error_message());
  }
}

}  // namespace

class Client::Impl {
 public:
  explicit Impl(Target to) : target_(std::move(to)) {
    const Target& target = target_;
    prepare_grpc();
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (target.tls) {
      grpc::SslCredentialsOptions options;
      options.pem_root_certs = target.ca;
      options.pem_cert_chain = target.cert;
      options.pem_private_key = target.key;
      credentials = grpc::SslCredentials(options);
    }
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);             // enough for a dump of thousands of ranks
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a separate connection
    // A lost host never closes its connection, so keepalive is needed even while a call waits for a checkpoint or step.
    const auto silence = static_cast<int>(std::chrono::milliseconds(target.silence).count());
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, silence);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, silence);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    stub_ = pb::Run::NewStub(grpc::CreateCustomChannel(target.address, credentials, arguments));
  }

  template <typename Reply, typename Call, typename Request>
  Reply ask(Call call, const Request& request, std::chrono::seconds timeout = kAnswer) {
    grpc::ClientContext context;
    prepare(context, timeout);
    Reply reply;
    if (const grpc::Status status = (stub_.get()->*call)(&context, request, &reply); !status.ok())
      refused(status, target_);
    return reply;
  }

  bool watch(int last, const std::function<bool(const pb::Step&)>& step) {
    grpc::ClientContext context;
    prepare(context, std::chrono::seconds(0));
    pb::WatchStepsRequest request;
    request.set_last(last);
    struct Watching {  // tells cancel() which call to cancel
      Impl& owner;
      Watching(Impl& impl, grpc::ClientContext& watched) : owner(impl) { owner.set_watched(&watched); }
      ~Watching() { owner.set_watched(nullptr); }
    } const watching(*this, context);
    const auto reader = stub_->WatchSteps(&context, request);
    pb::Step read;
    while (reader->Read(&read))
      if (!step(read)) {
        context.TryCancel();
        return false;
      }
    const grpc::Status status = reader->Finish();
    if (cancelled_.load()) return false;
    // A run that ends normally sends kHasEnded. A lost machine sends nothing.
    if (!status.ok() && status.error_message() != kHasEnded) refused(status, target_);
    return true;
  }

  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_.store(true);
    if (watched_) watched_->TryCancel();
  }

 private:
  void set_watched(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    watched_ = context;
    if (watched_ && cancelled_.load()) watched_->TryCancel();
  }
  void prepare(grpc::ClientContext& context, std::chrono::seconds timeout) const {
    if (!target_.token.empty()) context.AddMetadata("authorization", "Bearer " + target_.token);
    if (timeout.count() > 0) context.set_deadline(std::chrono::system_clock::now() + timeout);
  }

  const Target target_;
  std::unique_ptr<pb::Run::Stub> stub_;
  std::mutex mutex_;
  grpc::ClientContext* watched_ = nullptr;
  std::atomic<bool> cancelled_{false};
};

Client::Client(const Target& target) : impl_(std::make_unique<Impl>(target)) {}
Client::~Client() = default;

pb::Status Client::status() {
  return impl_->ask<pb::Status>(&pb::Run::Stub::GetStatus, pb::GetStatusRequest());
}
pb::Plan Client::plan() {
  return impl_->ask<pb::Plan>(&pb::Run::Stub::GetPlan, pb::GetPlanRequest());
}
pb::CheckpointReply Client::checkpoint() {
  return impl_->ask<pb::CheckpointReply>(&pb::Run::Stub::Checkpoint, pb::CheckpointRequest(), std::chrono::seconds(0));
}
pb::StopReply Client::stop(bool at_once) {
  pb::StopRequest request;
  request.set_at_once(at_once);
  return impl_->ask<pb::StopReply>(&pb::Run::Stub::Stop, request);
}
pb::Dump Client::dump() {
  return impl_->ask<pb::Dump>(&pb::Run::Stub::DumpState, pb::DumpStateRequest(), std::chrono::seconds(30));
}
bool Client::watch(int last, const std::function<bool(const pb::Step&)>& step) {
  return impl_->watch(last, step);
}
void Client::cancel() {
  impl_->cancel();
}

}  // namespace strata::launcher::control
