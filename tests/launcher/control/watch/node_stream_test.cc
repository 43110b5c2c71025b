#include "launcher/control/watch/node_stream.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "launcher/control/service/listener.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;

template <typename F>
bool comes(const F& f) {
  for (int polls = 0; polls < 2000; ++polls) {
    if (f()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

class NodeStreamTest : public testing::Test {
 protected:
  void serve(int port = 0) {
    server_.emplace(credentials_, 2, 0.1,
                    NodeServer::Callbacks{[this](const pb::NodeReport& report) {
                                            const std::lock_guard lock(mutex_);
                                            reports_.push_back(report);
                                            return looks_.load();
                                          },
                                          [this](int node) { broke_.store(node); }});
    Listener listener = Listener::tcp({"127.0.0.1", port}, "k");
    port_ = listener.port();
    limiter_.emplace(std::move(listener), 16, [this](Descriptor connection) { server_->adopt(std::move(connection)); });
  }
  void end() {
    limiter_.reset();
    server_.reset();
  }
  ~NodeStreamTest() override { end(); }

  std::string target() const { return "ipv4:127.0.0.1:" + std::to_string(port_); }
  std::size_t told() {
    const std::lock_guard lock(mutex_);
    return reports_.size();
  }
  static pb::NodeReport report(int node) {
    pb::NodeReport out;
    out.set_node(node);
    return out;
  }

  const Credentials credentials_ = make_credentials();
  std::mutex mutex_;
  std::vector<pb::NodeReport> reports_;
  std::atomic<int> broke_{-1};
  std::atomic<bool> looks_{true};
  std::optional<NodeServer> server_;
  std::optional<ConnectionLimiter> limiter_;
  int port_ = 0;
};

TEST_F(NodeStreamTest, CarriesReportsAndOrders) {
  serve();
  std::atomic<unsigned> dump{0};
  std::atomic<bool> verdict{false};
  NodeStream stream(target(), credentials_, [&](const pb::NodeOrder& order) {
    dump.store(order.dump_number());
    if (order.verdict() == "the end") verdict.store(true);
  });
  EXPECT_TRUE(comes([&] {
    stream.send(report(1));
    return told() > 2;
  }));
  pb::NodeOrder order;
  order.set_dump_number(5);
  server_->order(order);
  EXPECT_TRUE(comes([&] { return dump.load() == 5; })) << "at once, not with the next report";
  order.set_verdict("the end");
  server_->order(order);
  EXPECT_TRUE(comes([&] { return verdict.load(); }));
}

// Rank 0's watching thread may hang while gRPC's threads continue. Nodes must then notice that rank 0 is silent.
TEST_F(NodeStreamTest, DoesNotAnswerForAHungRank0) {
  looks_.store(false);
  serve();
  std::atomic<int> orders{0};
  NodeStream stream(target(), credentials_, [&](const pb::NodeOrder&) { orders.fetch_add(1); });
  const auto heard = [&](std::size_t reports) {
    return comes([&] {
      stream.send(report(1));
      return told() > reports;
    });
  };
  ASSERT_TRUE(heard(20));
  EXPECT_EQ(orders.load(), 0);
  looks_.store(true);
  EXPECT_TRUE(comes([&] {
    stream.send(report(1));
    return orders.load() > 0;
  }));
}

TEST_F(NodeStreamTest, DistinguishesALeaveNoticeFromABrokenStream) {
  serve();
  {
    NodeStream stream(target(), credentials_, [](const pb::NodeOrder&) {});
    ASSERT_TRUE(comes([&] {
      stream.send(report(1));
      return told() > 0;
    }));
    stream.leave(report(1));
  }
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(broke_.load(), -1);
  const std::size_t before = told();
  {
    NodeStream stream(target(), credentials_, [](const pb::NodeOrder&) {});
    ASSERT_TRUE(comes([&] {
      stream.send(report(0));
      return told() > before;
    }));
  }
  EXPECT_TRUE(comes([&] { return broke_.load() == 0; }));
}

TEST_F(NodeStreamTest, ReconnectsWhenTheLinkReturns) {
  serve();
  NodeStream stream(target(), credentials_, [](const pb::NodeOrder&) {});
  ASSERT_TRUE(comes([&] {
    stream.send(report(1));
    return told() > 0;
  }));
  end();
  for (int i = 0; i < 20; ++i) {
    stream.send(report(1));
    std::this_thread::sleep_for(20ms);
  }
  const std::size_t before = told();
  serve(port_);
  EXPECT_TRUE(comes([&] {
    stream.send(report(1));
    return told() > before;
  }));
}

// A client that knows the secret but sends nonsense ends only its own stream.
TEST_F(NodeStreamTest, EndsStreamsThatSendNoReports) {
  serve();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = options.pem_cert_chain = credentials_.cert;
  options.pem_private_key = credentials_.key;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("strata-run");
  arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(target(), grpc::SslCredentials(options), arguments));
  const auto send = [&](const std::string& bytes) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + credentials_.token);
    context.set_deadline(std::chrono::system_clock::now() + 60s);
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1), reply;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/strata.control.v1.Nodes/Attend", {}, &request, &reply,
                   [&](const grpc::Status& status) { done.set_value(status); });
    return done.get_future().get();
  };
  pb::NodeReport leaving = report(1);
  leaving.set_leaving(true);
  EXPECT_TRUE(send(leaving.SerializeAsString()).ok());
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(1 + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    (void)send(bytes);
  }
  // The slot of an ended stream is freed a moment later. Until then, there may be too many streams.
  EXPECT_TRUE(comes([&] { return send("\xff\xff\xff\xff").error_code() == grpc::StatusCode::INVALID_ARGUMENT; }));
  EXPECT_EQ(send(std::string(std::size_t{17} << 20, 'x')).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const std::size_t before = told();
  NodeStream right(target(), credentials_, [](const pb::NodeOrder&) {});
  EXPECT_TRUE(comes([&] {
    right.send(report(0));
    return told() > before;
  }));
}

TEST_F(NodeStreamTest, AdmitsOnlyNodesOfItsRun) {
  serve();
  Credentials other = credentials_;
  other.token = std::string(64, '0');
  NodeStream wrong_token(target(), other, [](const pb::NodeOrder&) { ADD_FAILURE() << "the server answered"; });
  Credentials no_certificate = credentials_;
  no_certificate.key.clear();
  NodeStream shows_none(target(), no_certificate, [](const pb::NodeOrder&) { ADD_FAILURE(); });
  NodeStream wrong_certificate(target(), make_credentials(), [](const pb::NodeOrder&) { ADD_FAILURE(); });
  for (int i = 0; i < 50; ++i) {
    wrong_token.send(report(1));
    wrong_certificate.send(report(1));
    shows_none.send(report(1));
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(told(), 0U);
  NodeStream right(target(), credentials_, [](const pb::NodeOrder&) {});
  EXPECT_TRUE(comes([&] {
    right.send(report(1));
    return told() > 0;
  }));
}

}  // namespace
}  // namespace strata::launcher::control
