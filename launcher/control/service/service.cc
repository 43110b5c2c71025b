#include "launcher/control/service/service.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <condition_variable>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "launcher/control/control.grpc.pb.h"
#include "launcher/control/service/grpc_setup.h"
#include "launcher/control/service/listener.h"

namespace strata::launcher::control {
namespace {

using grpc::CallbackServerContext;
using grpc::StatusCode;

constexpr std::size_t kMaxWaiting = 64;  // the maximum number of open calls of each kind

bool has_token(const CallbackServerContext& context, const std::string& token) {
  if (token.empty()) return true;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found == metadata.end()) return false;
  return same_secret({found->second.data(), found->second.size()}, "Bearer " + token);
}

// The port in a client's name as gRPC gives it, such as "ipv4:127.0.0.1:80"; 0 if it has none.
int port_of(const std::string& peer) {
  return parse_number<std::uint16_t>(std::string_view(peer).substr(peer.rfind(':') + 1)).value_or(0);
}

constexpr auto kToEnd = std::chrono::milliseconds(500);   // for open calls when the run ends
constexpr auto kToRead = std::chrono::milliseconds(200);  // for the clients of these calls to read the end

const grpc::Status kNoToken(StatusCode::UNAUTHENTICATED,
                            "the token is missing or wrong: give the file of control.token_file with --token-file");
const grpc::Status kTooMany(StatusCode::RESOURCE_EXHAUSTED, "too many calls of this kind are waiting");

}  // namespace

class Service::Impl final : public pb::Run::CallbackService {
 public:
  Impl(Board& board, const Credentials& credentials, Sources sources)
      : board_(board), token_(credentials.token), sources_(std::move(sources)) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    limit(builder, kMaxRequestBytes);
    std::shared_ptr<grpc::ServerCredentials> listen = grpc::InsecureServerCredentials();
    if (credentials.tls()) {
      grpc::SslServerCredentialsOptions options(credentials.client_ca.empty()
                                                    ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
      options.pem_key_cert_pairs.push_back({credentials.key, credentials.cert});
      options.pem_root_certs = credentials.client_ca;
      listen = grpc::SslServerCredentials(options);
    }
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, listen);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_) fail(Exit::failed, "the control service does not start: gRPC says why on stderr");
    server_->GetHealthCheckService()->SetServingStatus("strata.control.v1.Run", true);
  }

  ~Impl() override {
    ended_.store(true);
    end_calls();
    server_->Shutdown(std::chrono::system_clock::now() + kToEnd);
    server_->Wait();
  }

  void adopt(Descriptor connection) {
    {
      const std::lock_guard lock(mutex_);
      authenticated_.reset(static_cast<std::size_t>(port_of_peer(connection.get())));
    }
    hand_over(*acceptor_, std::move(connection));
  }

  bool is_authenticated(int port) const {
    const std::lock_guard lock(mutex_);
    return authenticated_.test(static_cast<std::size_t>(port));
  }

  void pump() {
    for (const auto& watcher : copy(watchers_)) watcher->go_on();
    const auto [saved, count] = board_.saved();
    for (const auto& call : copy(saves_)) call->look(saved);
  }

 private:
  bool may_ask(const CallbackServerContext& context) {
    if (!has_token(context, token_)) return false;
    const std::lock_guard lock(mutex_);
    authenticated_.set(static_cast<std::size_t>(port_of(context.peer())));
    return true;
  }

  template <typename F>
  grpc::ServerUnaryReactor* answer(CallbackServerContext* context, F f) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(may_ask(*context) ? f() : kNoToken);
    return reactor;
  }

  grpc::ServerUnaryReactor* GetStatus(CallbackServerContext* context, const pb::GetStatusRequest*,
                                      pb::Status* reply) override {
    return answer(context, [&] {
      *reply = board_.status();
      sources_.fill_ranks(*reply);
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* GetPlan(CallbackServerContext* context, const pb::GetPlanRequest*,
                                    pb::Plan* reply) override {
    return answer(context, [&] {
      *reply = board_.plan();
      if (reply->tasks() == 0) return grpc::Status(StatusCode::FAILED_PRECONDITION, "the run is not planned yet");
      return grpc::Status::OK;
    });
  }

  grpc::ServerUnaryReactor* Stop(CallbackServerContext* context, const pb::StopRequest* request,
                                 pb::StopReply* reply) override {
    return answer(context, [&] {
      board_.collect();  // counts steps that were posted just now
      const std::uint64_t asked = board_.stop_requested();
      // A run that was asked to stop with a checkpoint may still be asked to stop without one.
      if (asked != 0 && (!request->at_once() || (asked & runtime::kStopAtOnce) != 0))
        return grpc::Status(StatusCode::FAILED_PRECONDITION, "the run has already been asked to stop");
      if (board_.status().state() == pb::ENDING)
        return grpc::Status(StatusCode::FAILED_PRECONDITION, "the last step is done: the run ends by itself");
      const Board::Stop stop = board_.request_stop(request->at_once());
      // If it is too late to skip the checkpoint, the request has no effect.
      if (stop.at_once == request->at_once())
        board_.add_event(stop.at_once ? "asked to stop without a checkpoint" : "asked to stop");
      reply->set_step(board_.steps_done());
      reply->set_last_step(stop.last);
      reply->set_checkpoint(!stop.at_once && sources_.can_save);
      return grpc::Status::OK;
    });
  }

  // A call that stays open. The first thread that has a reason finishes it, once, and gRPC's last callback deletes it.
  class SaveCall final : public grpc::ServerUnaryReactor {
   public:
    SaveCall(Impl& owner, pb::CheckpointReply* reply, std::int64_t after)
        : owner_(owner), reply_(reply), after_(after) {}
    void look(const pb::SavedCheckpoint& saved) {
      if (saved.path().empty() || saved.step() < after_) return;
      const std::lock_guard lock(mutex_);
      if (finished_) return;
      reply_->set_step(saved.step());
      reply_->set_path(saved.path());
      finished_ = true;
      Finish(grpc::Status::OK);
    }
    void end(const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      if (std::exchange(finished_, true)) return;
      Finish(status);
    }
    void OnCancel() override { end(grpc::Status::CANCELLED); }
    void OnDone() override { owner_.forget(owner_.saves_, this); }

   private:
    Impl& owner_;
    pb::CheckpointReply* reply_;
    const std::int64_t after_;
    std::mutex mutex_;
    bool finished_ = false;
  };

  grpc::ServerUnaryReactor* Checkpoint(CallbackServerContext* context, const pb::CheckpointRequest*,
                                       pb::CheckpointReply* reply) override {
    const auto refuse = [&](const grpc::Status& status) {
      auto* reactor = context->DefaultReactor();
      reactor->Finish(status);
      return reactor;
    };
    if (!may_ask(*context)) return refuse(kNoToken);
    if (!sources_.can_save)
      return refuse({StatusCode::FAILED_PRECONDITION, "the run writes no checkpoints: checkpoint.dir is not set"});
    board_.collect();
    const pb::State state = board_.status().state();
    if (state == pb::ENDING || state == pb::STOPPING)
      return refuse({StatusCode::FAILED_PRECONDITION, "the run is ending, and writes its last checkpoint by itself"});
    const auto call = add(saves_, std::make_shared<SaveCall>(*this, reply, board_.steps_done()));
    if (!call) return refuse(kTooMany);
    board_.request_checkpoint();
    return call.get();
  }

  grpc::ServerUnaryReactor* DumpState(CallbackServerContext* context, const pb::DumpStateRequest*,
                                      pb::Dump* reply) override {
    auto* reactor = context->DefaultReactor();
    if (!may_ask(*context)) {
      reactor->Finish(kNoToken);
      return reactor;
    }
    if (dumps_.fetch_add(1) >= kMaxWaiting) {
      dumps_.fetch_sub(1);
      reactor->Finish(kTooMany);
      return reactor;
    }
    sources_.dump([this, reactor, reply](pb::Dump dump) {
      dumps_.fetch_sub(1);
      *reply = std::move(dump);
      reactor->Finish(reply->ranks_size() > 0 ? grpc::Status::OK
                                              : grpc::Status(StatusCode::UNAVAILABLE,
                                                             "no rank has reported its state, or the run has ended"));
    });
    return reactor;
  }

  class Watcher final : public grpc::ServerWriteReactor<pb::Step> {
   public:
    Watcher(Impl& owner, std::int64_t after) : owner_(owner), after_(after) {}
    void go_on() {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_) return;
      auto step = owner_.board_.step_after(after_);
      if (!step) {
        finished_ = ends_with_.has_value();
        if (finished_) Finish(*ends_with_);
        return;
      }
      step_ = std::move(*step);
      after_ = step_.step();
      writing_ = true;
      StartWrite(&step_);
    }
    void end(const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      if (std::exchange(finished_, true)) return;
      Finish(status);
    }
    // Ends the call after the last step has been sent.
    void end_after_last(const grpc::Status& status) {
      {
        const std::lock_guard lock(mutex_);
        ends_with_ = status;
      }
      go_on();
    }
    void OnWriteDone(bool well) override {
      {
        const std::lock_guard lock(mutex_);
        writing_ = false;
      }
      well ? go_on() : end(grpc::Status::CANCELLED);
    }
    void OnCancel() override { end(grpc::Status::CANCELLED); }
    void OnDone() override { owner_.forget(owner_.watchers_, this); }

   private:
    Impl& owner_;
    std::mutex mutex_;
    std::int64_t after_;
    bool writing_ = false, finished_ = false;
    std::optional<grpc::Status> ends_with_;
    pb::Step step_;
  };

  grpc::ServerWriteReactor<pb::Step>* WatchSteps(CallbackServerContext* context,
                                                 const pb::WatchStepsRequest* request) override {
    class Refusal final : public grpc::ServerWriteReactor<pb::Step> {
     public:
      explicit Refusal(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };
    if (!may_ask(*context)) return new Refusal(kNoToken);
    const std::int64_t last = std::clamp(request->last(), 0, 256);
    const auto watcher = add(watchers_, std::make_shared<Watcher>(*this, board_.steps_done() - last));
    if (!watcher) return new Refusal(kTooMany);
    watcher->go_on();
    return watcher.get();
  }

  template <typename Call>
  std::shared_ptr<Call> add(std::list<std::shared_ptr<Call>>& calls, std::shared_ptr<Call> call) {
    const std::lock_guard lock(mutex_);
    if (calls.size() >= kMaxWaiting || ended_.load()) return nullptr;
    return calls.emplace_back(std::move(call));
  }
  template <typename Call>
  std::list<std::shared_ptr<Call>> copy(const std::list<std::shared_ptr<Call>>& calls) const {
    const std::lock_guard lock(mutex_);
    return calls;
  }
  template <typename Call>
  void forget(std::list<std::shared_ptr<Call>>& calls, const Call* call) {
    std::shared_ptr<Call> last;  // destroyed outside the lock
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(calls.begin(), calls.end(), [&](const auto& known) { return known.get() == call; });
    if (found == calls.end()) return;
    last = *found;
    calls.erase(found);
    if (watchers_.empty() && saves_.empty()) no_calls_.notify_all();
  }
  void end_calls() {
    pump();  // sends the steps that were posted last
    const grpc::Status over(StatusCode::UNAVAILABLE, kHasEnded);
    const auto watchers = copy(watchers_);
    const auto saves = copy(saves_);
    for (const auto& watcher : watchers) watcher->end_after_last(over);
    for (const auto& call : saves) call->end(over);
    if (watchers.empty() && saves.empty()) return;
    {
      std::unique_lock lock(mutex_);
      no_calls_.wait_for(lock, kToEnd, [&] { return watchers_.empty() && saves_.empty(); });
    }
    // A client that writes to a closed connection, even to acknowledge, loses what it has not read yet.
    std::this_thread::sleep_for(kToRead);
  }

  Board& board_;
  const std::string token_;
  Sources sources_;
  std::atomic<bool> ended_{false};
  std::atomic<std::size_t> dumps_{0};  // dumps that are being waited for
  mutable std::mutex mutex_;
  // Ports of connections that have shown the token. If two hosts use the same port, a connection may stay because of
  // the other.
  std::bitset<0x10000> authenticated_;
  std::condition_variable no_calls_;
  std::list<std::shared_ptr<Watcher>> watchers_;
  std::list<std::shared_ptr<SaveCall>> saves_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

Service::Service(Board& board, const Credentials& credentials, Sources sources)
    : impl_(std::make_unique<Impl>(board, credentials, std::move(sources))) {}
Service::~Service() = default;

void Service::adopt(Descriptor connection) {
  impl_->adopt(std::move(connection));
}
bool Service::is_authenticated(int port) const {
  return impl_->is_authenticated(port);
}
void Service::pump() {
  impl_->pump();
}

}  // namespace strata::launcher::control
