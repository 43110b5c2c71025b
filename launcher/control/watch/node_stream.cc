#include "launcher/control/watch/node_stream.h"

#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "launcher/control/control.grpc.pb.h"
#include "launcher/control/service/grpc_setup.h"

namespace strata::launcher::control {
namespace {

// Enough for a report of a hundred ranks with their dumps.
constexpr std::size_t kMaxReportBytes = 16 << 20;
constexpr int kHandshakeMs = 5'000;
constexpr int kIdleMs = 5'000;               // for a connection without a stream
constexpr const char* kName = "strata-run";  // in the run's certificate

}  // namespace

class NodeServer::Impl final : public pb::Nodes::CallbackService {
 public:
  Impl(const Credentials& credentials, int nodes, double answer_every, Callbacks callbacks)
      : token_(credentials.token),
        most_(2 * static_cast<std::size_t>(nodes)),
        answer_every_(answer_every),
        callbacks_(std::move(callbacks)) {
    grpc::ServerBuilder builder;
    limit(builder, kMaxReportBytes, kHandshakeMs, kIdleMs);
    // The handshake rejects strangers, so that they cannot take a node's place.
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = credentials.cert;
    options.pem_key_cert_pairs.push_back({credentials.key, credentials.cert});
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    acceptor_ =
        builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, grpc::SslServerCredentials(options));
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_) fail(Exit::failed, "the streams between nodes do not start: gRPC says why on stderr");
  }

  ~Impl() override {
    ended_.store(true);
    for (const auto& stream : copy()) stream->end(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the run has ended"));
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    server_->Wait();
  }

  void adopt(Descriptor connection) { hand_over(*acceptor_, std::move(connection)); }

  void order(const pb::NodeOrder& order) {
    {
      const std::lock_guard lock(mutex_);
      order_ = order;
    }
    for (const auto& stream : copy()) stream->answer();
  }

 private:
  class Stream final : public grpc::ServerBidiReactor<pb::NodeReport, pb::NodeOrder> {
   public:
    explicit Stream(Impl& owner) : owner_(owner) {}
    void go() { StartRead(&report_); }
    void OnReadDone(bool well) override {
      if (!well)
        return end(left_ ? grpc::Status::OK
                         : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                        "a message is not a report, or the closing report is missing"));
      node_ = report_.node();
      left_ = left_ || report_.leaving();
      const bool is_heard = owner_.callbacks_.received(report_);
      const auto now = std::chrono::steady_clock::now();
      if (is_heard && now - answered_ >= owner_.answer_every_) {
        answered_ = now;
        answer();
      }
      StartRead(&report_);
    }
    void answer() {
      const std::lock_guard lock(mutex_);
      if (finished_) return;
      if (writing_) {
        again_ = true;
        return;
      }
      order_ = owner_.newest();
      writing_ = true;
      StartWrite(&order_);
    }
    void OnWriteDone(bool well) override {
      bool again = false;
      {
        const std::lock_guard lock(mutex_);
        writing_ = false;
        again = std::exchange(again_, false);
      }
      if (!well)
        end(grpc::Status::CANCELLED);
      else if (again)
        answer();
    }
    void end(const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      if (std::exchange(finished_, true)) return;
      Finish(status);
    }
    void OnCancel() override { end(grpc::Status::CANCELLED); }
    void OnDone() override {
      if (node_ >= 0 && !left_ && !owner_.ended_.load()) owner_.callbacks_.broke(node_);
      owner_.forget(this);
    }

   private:
    Impl& owner_;
    std::mutex mutex_;
    pb::NodeReport report_;
    pb::NodeOrder order_;
    std::chrono::steady_clock::time_point answered_{};
    int node_ = -1;
    bool left_ = false, writing_ = false, again_ = false, finished_ = false;
  };

  grpc::ServerBidiReactor<pb::NodeReport, pb::NodeOrder>* Attend(grpc::CallbackServerContext* context) override {
    class Refusal final : public grpc::ServerBidiReactor<pb::NodeReport, pb::NodeOrder> {
     public:
      explicit Refusal(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };
    const auto& metadata = context->client_metadata();
    const auto found = metadata.find("authorization");
    if (found == metadata.end() || !same_secret({found->second.data(), found->second.size()}, "Bearer " + token_))
      return new Refusal({grpc::StatusCode::UNAUTHENTICATED, "not a node of this run"});
    const auto stream = std::make_shared<Stream>(*this);
    {
      const std::lock_guard lock(mutex_);
      if (streams_.size() >= most_ || ended_.load())
        return new Refusal({grpc::StatusCode::RESOURCE_EXHAUSTED, "more streams than nodes"});
      streams_.push_back(stream);
    }
    stream->go();
    return stream.get();
  }

  pb::NodeOrder newest() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  std::list<std::shared_ptr<Stream>> copy() const {
    const std::lock_guard lock(mutex_);
    return streams_;
  }
  void forget(const Stream* stream) {
    std::shared_ptr<Stream> last;  // destroyed outside the lock
    const std::lock_guard lock(mutex_);
    for (auto at = streams_.begin(); at != streams_.end(); ++at)
      if (at->get() == stream) {
        last = *at;
        streams_.erase(at);
        return;
      }
  }

  const std::string token_;
  const std::size_t most_;
  const std::chrono::duration<double> answer_every_;
  Callbacks callbacks_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  pb::NodeOrder order_;
  std::list<std::shared_ptr<Stream>> streams_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

NodeServer::NodeServer(const Credentials& credentials, int nodes, double answer_every, Callbacks callbacks) {
  // One arena is enough. gRPC's threads allocate and free memory for streams, and one arena per thread would keep
  // megabytes of freed memory. No compute code allocates.
  mallopt(M_ARENA_MAX, 1);
  impl_ = std::make_unique<Impl>(credentials, nodes, answer_every, std::move(callbacks));
}
NodeServer::~NodeServer() = default;
void NodeServer::adopt(Descriptor connection) {
  impl_->adopt(std::move(connection));
}
void NodeServer::order(const pb::NodeOrder& order) {
  impl_->order(order);
}

class NodeStream::Impl {
 public:
  Impl(const std::string& target, const Credentials& credentials, std::function<void(const pb::NodeOrder&)> ordered)
      : token_(credentials.token), ordered_(std::move(ordered)) {
    prepare_grpc();
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = credentials.cert;
    options.pem_cert_chain = credentials.cert;
    options.pem_private_key = credentials.key;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kName);
    arguments.SetMaxReceiveMessageSize(1 << 20);
    // Find a link that has come back within a second.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    // Use a separate connection without a proxy.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = pb::Nodes::NewStub(grpc::CreateCustomChannel(target, grpc::SslCredentials(options), arguments));
  }

  ~Impl() {
    std::unique_lock lock(mutex_);
    over_ = true;
    if (call_) call_->cancel();
    ended_.wait(lock, [&] { return !call_; });
  }

  void send(const pb::NodeReport& report) {
    std::shared_ptr<Call> call;
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      past_.clear();
      if (!call_) {
        call_ = std::make_shared<Call>(*this);
        call_->go(*stub_, token_);
      }
      call = call_;
    }
    call->send(report);
  }

  void leave(pb::NodeReport report) {
    report.set_leaving(true);
    std::shared_ptr<Call> call;
    {
      const std::lock_guard lock(mutex_);
      call = call_;
    }
    if (!call) return;
    call->send(report, true);
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, std::chrono::milliseconds(500), [&] { return !call_; });
  }

 private:
  class Call final : public grpc::ClientBidiReactor<pb::NodeReport, pb::NodeOrder> {
   public:
    explicit Call(Impl& owner) : owner_(owner) {}
    void go(pb::Nodes::Stub& stub, const std::string& token) {
      context_.AddMetadata("authorization", "Bearer " + token);
      stub.async()->Attend(&context_, this);
      AddHold();  // for writes that send() starts from outside
      StartRead(&order_);
      StartCall();
    }
    // No report follows the last one. Rank 0 ends the stream when it has read it.
    void send(const pb::NodeReport& report, bool last = false) {
      const std::lock_guard lock(mutex_);
      if (last_) return;
      next_ = report;
      last_ = last;
      waiting_ = true;
      write_next();
    }
    void cancel() { context_.TryCancel(); }
    void OnReadDone(bool well) override {
      if (!well) return release();
      owner_.ordered_(order_);
      StartRead(&order_);
    }
    void OnWriteDone(bool well) override {
      if (!well) return release();
      const std::lock_guard lock(mutex_);
      writing_ = false;
      write_next();
    }
    void OnDone(const grpc::Status&) override { owner_.forget(this); }

   private:
    void write_next() {
      if (writing_ || broken_ || !waiting_) return;
      report_ = std::move(next_);
      waiting_ = false;
      writing_ = true;
      if (last_)
        StartWriteLast(&report_, {});
      else
        StartWrite(&report_);
    }
    void release() {
      {
        const std::lock_guard lock(mutex_);
        if (std::exchange(broken_, true)) return;
      }
      RemoveHold();
    }

    Impl& owner_;
    grpc::ClientContext context_;
    std::mutex mutex_;
    pb::NodeReport next_, report_;
    pb::NodeOrder order_;
    bool waiting_ = false, writing_ = false, broken_ = false, last_ = false;
  };

  // Do not destroy the call here: it holds the channel, and gRPC's thread, which runs this, would wait for its own end.
  void forget(const Call* call) {
    const std::lock_guard lock(mutex_);
    STRATA_CHECK(call_.get() == call);
    past_.push_back(std::move(call_));
    call_ = nullptr;
    ended_.notify_all();
  }

  const std::string token_;
  std::function<void(const pb::NodeOrder&)> ordered_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::unique_ptr<pb::Nodes::Stub> stub_;
  std::shared_ptr<Call> call_;
  std::list<std::shared_ptr<Call>> past_;
};

NodeStream::NodeStream(const std::string& target, const Credentials& credentials,
                       std::function<void(const pb::NodeOrder&)> ordered)
    : impl_(std::make_unique<Impl>(target, credentials, std::move(ordered))) {}
NodeStream::~NodeStream() = default;
void NodeStream::send(const pb::NodeReport& report) {
  impl_->send(report);
}
void NodeStream::leave(pb::NodeReport report) {
  impl_->leave(std::move(report));
}

}  // namespace strata::launcher::control
