#include "launcher/control/service/service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "launcher/control/client/client.h"
#include "launcher/control/control.grpc.pb.h"
#include "tests/failure.h"
#include "tests/launcher/control/service/service_case.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using tests::failure_of;

class ServiceTest : public ServiceCase {};

TEST_F(ServiceTest, ReturnsTheStatusThePlanAndADump) {
  open();
  post(1);
  Client client(target());
  pb::Status status;
  for (int polls = 0; polls < 500 && status.step() < 1; ++polls) status = client.status();
  EXPECT_EQ(status.step(), 1);
  EXPECT_EQ(status.max_steps(), 100);
  EXPECT_EQ(status.run().family(), "gpt2");
  EXPECT_EQ(status.ranks(0).rank(), 7);
  EXPECT_EQ(status.memory(0).planned_bytes(), 1000U);
  EXPECT_EQ(client.dump().ranks(0).rank(), 3);
  EXPECT_THAT(failure_of([&] { (void)client.plan(); }).what(), HasSubstr("not planned yet"));
  pb::Plan plan;
  plan.set_tasks(5);
  board_.describe(plan);
  EXPECT_EQ(client.plan().tasks(), 5);
}

// Watches a run from another thread, beginning with the newest `last` steps.
class Watching {
 public:
  Watching(const Target& target, int last)
      : ended_(std::async(std::launch::async, [this, target, last] {
          return Client(target).watch(last, [this](const pb::Step& step) {
            seen_.push_back(step.step());
            begun_.store(true);
            return true;
          });
        })) {}
  void wait_for_first() const {
    while (!begun_.load()) std::this_thread::sleep_for(5ms);
  }
  // The steps that were sent until the run ended.
  std::vector<std::int64_t> seen() {
    EXPECT_TRUE(ended_.get()) << "the run has not ended";
    return seen_;
  }

 private:
  std::vector<std::int64_t> seen_;
  std::atomic<bool> begun_{false};
  std::future<bool> ended_;
};

TEST_F(ServiceTest, StreamsStepsAndEndsWithTheRun) {
  open();
  for (std::int64_t step = 1; step <= 3; ++step) post(step);
  Client client(target());
  while (client.status().step() < 3) std::this_thread::sleep_for(5ms);
  Watching watching(target(), 2);
  watching.wait_for_first();
  for (std::int64_t step = 4; step <= 6; ++step) post(step);
  std::this_thread::sleep_for(200ms);
  close();
  EXPECT_THAT(watching.seen(), testing::ElementsAre(2, 3, 4, 5, 6));
}

// If a run ends before its last steps were sent, all of them are sent before its end.
TEST_F(ServiceTest, StreamsTheLastStepToo) {
  open();
  post(1);
  Watching watching(target(), 1);
  watching.wait_for_first();
  pump_ = {};  // no thread checks for new steps any more
  for (std::int64_t step = 2; step <= 120; ++step) post(step);
  board_.collect();
  close();
  const std::vector<std::int64_t> seen = watching.seen();
  ASSERT_EQ(seen.size(), 120U);
  EXPECT_EQ(seen.back(), 120);
}

// A watcher may leave at any time, even if the run is stuck.
TEST_F(ServiceTest, AWatcherMayLeaveBetweenTwoSteps) {
  open();
  Client watcher(target());
  std::atomic<bool> begun{false};
  auto ended = std::async(std::launch::async, [&] {
    return watcher.watch(1, [&](const pb::Step&) {
      begun.store(true);
      return true;
    });
  });
  post(1);
  while (!begun.load()) std::this_thread::sleep_for(5ms);
  watcher.cancel();
  ASSERT_EQ(ended.wait_for(60s), std::future_status::ready);
  EXPECT_FALSE(ended.get()) << "the run has not ended";
  EXPECT_FALSE(watcher.watch(1, [](const pb::Step&) { return true; })) << "and it is no longer watched";
}

// Carries bytes between a client and a service until it is cut. After that, nothing arrives, not even the end of the
// stream.
class Cable {
 public:
  explicit Cable(int port) : port_(port), listener_(Listener::tcp({"127.0.0.1", 0}, "k")) {
    thread_ = std::jthread([this](const std::stop_token& stop) { carry(stop); });
  }
  int port() const { return listener_.port(); }
  void cut() { cut_.store(true); }

 private:
  void carry(const std::stop_token& stop) {
    Descriptor ends[2];
    while (!stop.stop_requested() && ends[0].get() < 0) {
      std::this_thread::sleep_for(5ms);
      ends[0].reset(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    ends[1].reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(ends[1].get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    while (!stop.stop_requested()) {
      pollfd waits[] = {{ends[0].get(), POLLIN, 0}, {ends[1].get(), POLLIN, 0}};
      if (poll(waits, 2, 20) <= 0 || cut_.load()) continue;
      for (const int from : {0, 1}) {
        std::array<char, 4096> piece{};
        if (waits[from].revents == 0) continue;
        const ssize_t n = recv(ends[from].get(), piece.data(), piece.size(), 0);
        if (n <= 0) return;
        (void)send(ends[1 - from].get(), piece.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL);
      }
    }
  }
  int port_;
  Listener listener_;
  std::atomic<bool> cut_{false};
  std::jthread thread_;
};

TEST_F(ServiceTest, ALostMachineEndsWaitingCalls) {
  open({}, true, true);
  Cable cable(std::stoi(address_.substr(address_.find(':') + 1)));
  Target far{"127.0.0.1:" + std::to_string(cable.port()), false, "", "", "", "", 2s};
  Client client(far);
  auto saving = std::async(std::launch::async, [&] {
    try {
      (void)client.checkpoint();
      return std::string("a checkpoint");
    } catch (const Unavailable& gone) {
      return std::string("gone");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  });
  std::atomic<bool> begun{false};
  post(1);
  auto watching = std::async(std::launch::async, [&] {
    return failure_of([&] {
      (void)client.watch(1, [&](const pb::Step&) {
        begun.store(true);
        return true;
      });
    });
  });
  while ((board_.take_requests() & runtime::kCheckpoint) == 0) std::this_thread::sleep_for(5ms);
  while (!begun.load()) std::this_thread::sleep_for(5ms);
  cable.cut();
  ASSERT_EQ(saving.wait_for(60s), std::future_status::ready) << "it never returned";
  EXPECT_EQ(saving.get(), "gone");
  ASSERT_EQ(watching.wait_for(60s), std::future_status::ready);
  EXPECT_THAT(watching.get().what(), HasSubstr("does not answer")) << "this end is not a success";
}

TEST_F(ServiceTest, CheckpointReturnsOnceThatStepOrALaterOneIsDurable) {
  open();
  post(7);
  Client client(target());
  while (client.status().step() < 7) std::this_thread::sleep_for(5ms);
  auto first = std::async(std::launch::async, [&] { return Client(target()).checkpoint(); });
  auto second = std::async(std::launch::async, [&] { return Client(target()).checkpoint(); });
  std::uint64_t requests = 0;
  while ((requests & runtime::kCheckpoint) == 0) requests = board_.take_requests();
  board_.post_saved(6, "/ck/step-6");  // begun before the first request
  EXPECT_EQ(first.wait_for(300ms), std::future_status::timeout);
  board_.post_saved(8, "/ck/step-8");
  for (auto* reply : {&first, &second}) {
    const pb::CheckpointReply got = reply->get();
    EXPECT_EQ(got.step(), 8);
    EXPECT_EQ(got.path(), "/ck/step-8");
  }
}

TEST_F(ServiceTest, WaitingForACheckpointEndsWithTheRun) {
  open();
  auto reply = std::async(std::launch::async, [&] { return failure_of([&] { (void)Client(target()).checkpoint(); }); });
  while ((board_.take_requests() & runtime::kCheckpoint) == 0) std::this_thread::sleep_for(5ms);
  close();
  EXPECT_THAT(reply.get().what(), HasSubstr("the run has ended"));
}

// The words of the system, not those of gRPC.
TEST_F(ServiceTest, AnAddressWithoutARunIsNamed) {
  const auto said = [](const std::string& address) {
    return std::string(failure_of([&] { (void)Client({.address = address, .plain = true}).stop(false); }).what());
  };
  const std::string none = (folder_.path() / "none").string(), file = folder_.write("file", "").string();
  const std::string port = std::to_string(Listener::tcp({"127.0.0.1", 0}, "k").port());  // closed again
  EXPECT_THAT(said("unix:" + none), HasSubstr("there is no socket " + none + " on "));
  EXPECT_THAT(said("unix:" + file), HasSubstr("nothing listens at unix:" + file));
  EXPECT_THAT(said("127.0.0.1:" + port), HasSubstr("nothing listens at 127.0.0.1:" + port));
  for (const std::string& address : {"unix:" + none, "unix:" + file, "127.0.0.1:" + port})
    EXPECT_THAT(said(address),
                testing::AllOf(HasSubstr("give its checkpoint.dir"), testing::Not(HasSubstr("failed to connect"))));
}

TEST_F(ServiceTest, RefusesACheckpointWithoutAFolderOrAtTheEnd) {
  open({}, false);
  EXPECT_THAT(failure_of([&] { (void)Client(target()).checkpoint(); }).what(), HasSubstr("checkpoint.dir is not set"));
  close();
  open();
  (void)Client(target()).stop(false);
  EXPECT_THAT(failure_of([&] { (void)Client(target()).checkpoint(); }).what(), HasSubstr("the run is ending"));
}

TEST_F(ServiceTest, AStopCanBecomeImmediate) {
  open();
  Client client(target());
  EXPECT_TRUE(client.stop(false).checkpoint());
  EXPECT_THAT(failure_of([&] { (void)client.stop(false); }).what(), HasSubstr("already been asked to stop"));
  EXPECT_FALSE(client.stop(true).checkpoint());
  EXPECT_EQ(board_.take_requests(), runtime::kStop | runtime::kStopAtOnce);
  EXPECT_THAT(failure_of([&] { (void)client.stop(true); }).what(), HasSubstr("already been asked to stop"));
  EXPECT_EQ(client.status().state(), pb::STOPPING);
}

// A step that has begun accepts no requests, so the next one is the last.
TEST_F(ServiceTest, ReportsAfterWhichStepTheRunEnds) {
  open();
  Client client(target());
  for (std::int64_t step = 1; step <= 40; ++step) {
    (void)board_.take_requests();
    post(step);
  }
  (void)board_.take_requests();  // step 41 is under way
  const pb::StopReply reply = client.stop(true);
  EXPECT_EQ(reply.step(), 40);
  EXPECT_EQ(reply.last_step(), 42);
  EXPECT_FALSE(reply.checkpoint());
  EXPECT_EQ(board_.take_requests(), runtime::kStop | runtime::kStopAtOnce);
}

TEST_F(ServiceTest, ReportsThatItIsTooLateToSkipTheCheckpoint) {
  open();
  Client client(target());
  EXPECT_EQ(client.stop(false).last_step(), 1);
  EXPECT_EQ(board_.take_requests(), runtime::kStop);
  const pb::StopReply late = client.stop(true);
  EXPECT_TRUE(late.checkpoint());
  EXPECT_EQ(late.last_step(), 1);
  EXPECT_EQ(board_.stop_requested(), runtime::kStop) << "the late request was not posted";
  const pb::Status status = client.status();
  for (const pb::Event& event : status.events())
    EXPECT_THAT(event.text(), Not(HasSubstr("without a checkpoint"))) << "which is not what happens";
  close();
  Board evaluating;
  (void)evaluating.request_stop(false);
  EXPECT_EQ(evaluating.take_stop(), runtime::kStop);
  EXPECT_FALSE(evaluating.request_stop(true).at_once);
}

TEST_F(ServiceTest, RefusesInvalidAndLongMessages) {
  open();
  std::mt19937_64 random(1);
  for (const char* method : {"GetStatus", "GetPlan", "Stop", "DumpState"})
    for (int i = 0; i < 64; ++i) {
      std::string bytes(random() % 200, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      // Random bytes may happen to be a message; otherwise the call is refused.
      (void)call_raw(fmt::format("/strata.control.v1.Run/{}", method), bytes);
    }
  const std::string open_ended = "\xff\xff\xff\xff";
  EXPECT_FALSE(call_raw("/strata.control.v1.Run/GetStatus", open_ended).ok());
  EXPECT_EQ(call_raw("/strata.control.v1.Run/GetStatus", std::string(1 << 20, 'x')).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(call_raw("/strata.control.v1.Run/NoSuch", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Client(target()).status().max_steps(), 100);
}

TEST_F(ServiceTest, RefusesAGibibyte) {
  open();
  EXPECT_EQ(call_raw("/strata.control.v1.Run/GetStatus", std::string(std::size_t{1} << 30, '\0')).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Client(target()).status().max_steps(), 100);
}

TEST_F(ServiceTest, AnswersDespiteInvalidAndSilentConnections) {
  open();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path().native().copy(address.sun_path, sizeof address.sun_path - 1);
  std::vector<Descriptor> connections;
  for (int i = 0; i < 40; ++i) {
    connections.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(connections.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string text = i % 2 ? "GET / HTTP/1.1\r\n\r\n" : std::string(100, '\xff');
    if (i % 4) (void)send(connections.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Client(target()).status().max_steps(), 100);
}

TEST_F(ServiceTest, LimitsPendingDumps) {
  std::mutex mutex;
  std::vector<std::function<void(pb::Dump)>> asked;
  dump_ = [&](std::function<void(pb::Dump)> done) {
    const std::lock_guard lock(mutex);
    asked.push_back(std::move(done));
  };
  open();
  const auto waiting = [&] {
    const std::lock_guard lock(mutex);
    return asked.size();
  };
  std::vector<std::future<Error>> calls;
  for (std::size_t i = 0; i < 70; ++i) {  // one after the other, for whom a listener's queue has room
    calls.push_back(std::async(std::launch::async, [&] { return failure_of([&] { (void)Client(target()).dump(); }); }));
    for (int polls = 0; polls < 2000 && waiting() == std::min<std::size_t>(i, 64); ++polls) {
      if (calls.back().wait_for(5ms) == std::future_status::ready) break;
    }
  }
  const std::lock_guard lock(mutex);
  EXPECT_EQ(asked.size(), 64U);
  for (const auto& done : asked) done({});
  for (auto& call : calls) EXPECT_THAT(call.get().what(), testing::AnyOf(HasSubstr("too many"), HasSubstr("no rank")));
}

TEST_F(ServiceTest, LimitsOpenCalls) {
  open();
  std::vector<std::future<Error>> calls;
  for (int i = 0; i < 80; ++i)
    calls.push_back(
        std::async(std::launch::async, [&] { return failure_of([&] { (void)Client(target()).checkpoint(); }); }));
  int refused = 0;
  for (int polls = 0; polls < 1000 && refused < 16; ++polls) {
    refused = 0;
    for (auto& call : calls)
      if (call.wait_for(0s) == std::future_status::ready) ++refused;
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_GE(refused, 16) << "64 wait";
  EXPECT_EQ(Client(target()).status().max_steps(), 100);
  close();
  for (auto& call : calls) EXPECT_STRNE(call.get().what(), "");
}

}  // namespace
}  // namespace strata::launcher::control
