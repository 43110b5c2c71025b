#pragma once
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "launcher/control/client/client.h"
#include "launcher/control/control.grpc.pb.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/service/service.h"
#include "tests/scratch_folder.h"

namespace strata::launcher::control {

// A service on a socket, for a simulated run: the test posts its steps.
class ServiceCase : public testing::Test {
 protected:
  void open(const Credentials& credentials = {}, bool can_save = true, bool tcp = false, std::size_t most = 128,
            std::chrono::milliseconds within = std::chrono::seconds(10)) {
    runtime::Memory planned{};
    planned[0].peak = 1000;
    pb::RunInfo run;
    run.set_family("gpt2");
    board_.describe(run, 100, planned, 0);
    board_.set_state(pb::TRAINING);
    service_.emplace(board_, credentials,
                     Service::Sources{[](pb::Status& status) { status.add_ranks()->set_rank(7); }, dump_, can_save});
    Listener listener = tcp ? Listener::tcp({"127.0.0.1", 0}, "k") : Listener::unix_socket(path(), "k");
    address_ = tcp ? "localhost:" + std::to_string(listener.port()) : "unix:" + path().string();
    limiter_.emplace(
        std::move(listener), most, [this](Descriptor connection) { service_->adopt(std::move(connection)); },
        Proof{within, [this](int port) { return service_->is_authenticated(port); }});
    pump_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        board_.collect();
        service_->pump();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  void close() {
    pump_ = {};
    limiter_.reset();
    service_.reset();
  }
  ~ServiceCase() override { close(); }

  std::filesystem::path path() const { return folder_.path() / "s"; }
  Target target(std::string token = "") const {
    return {address_, false, "", "", "", std::move(token), std::chrono::seconds(20)};
  }
  void post(std::int64_t step) {
    runtime::StepReport report{};
    report.step = step;
    report.loss = 1.0 / static_cast<double>(step);
    report.step_ms = 10;
    report.tokens = 64;
    board_.post(report, {}, {});
  }
  // Calls the method with these bytes as its request.
  grpc::Status call_raw(const std::string& method, const std::string& bytes, const std::string& token = "") {
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    grpc::GenericStub stub(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", token);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1), reply;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, {}, &request, &reply, [&](const grpc::Status& status) { done.set_value(status); });
    return done.get_future().get();
  }

  tests::ScratchFolder folder_;
  Board board_;
  std::string address_;
  std::function<void(std::function<void(pb::Dump)>)> dump_ = [](const std::function<void(pb::Dump)>& done) {
    pb::Dump dump;
    dump.add_ranks()->set_rank(3);
    done(dump);
  };
  std::optional<Service> service_;
  std::optional<ConnectionLimiter> limiter_;
  std::jthread pump_;
};

}  // namespace strata::launcher::control
