#include "launcher/control/control.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "comm/agreement.h"
#include "launcher/control/board.h"
#include "launcher/control/credentials.h"
#include "launcher/control/listener.h"
#include "launcher/control/node_memory.h"
#include "launcher/control/quiet_thread.h"
#include "launcher/control/service.h"
#include "launcher/control/target.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostConnections = 128;  // of people and tools

// Where the service listens, and as whom. Throws Error{usage}.
struct Front {
  std::optional<Listener> listener;
  Credentials credentials;
  Place place;
  std::string refusal;  // why there is no private socket
};

void require_safe(const std::string& where, std::string_view key, const Credentials& credentials) {
  if (is_loopback(host_and_port(where), key)) return;
  if (!credentials.tls() || credentials.token.empty())
    fail(Exit::usage,
         "{} = \"{}\" lets other machines steer this run: give control.tls_cert, control.tls_key and "
         "control.token_file, or use an address of this machine alone (127.0.0.1:PORT)",
         key, where);
}

Front open_front(const runtime::Recipe::Control& recipe) {
  Front out;
  out.credentials = read_credentials(recipe);
  out.place = {host_name(), getpid(), "", "", false};
  if (recipe.listen == "off") return out;
  constexpr std::string_view kKey = "control.listen", kUnix = "unix:";
  if (recipe.listen == "auto") {
    out.credentials = {};
    try {
      const std::filesystem::path folder = socket_folder();
      sweep(folder);
      out.listener = Listener::unix_socket(folder / fmt::format("{}.sock", getpid()), kKey);
    } catch (const Error& error) {
      out.refusal = error.what();
      return out;
    }
  } else if (recipe.listen.starts_with(kUnix)) {
    out.listener = Listener::unix_socket(recipe.listen.substr(kUnix.size()), kKey);
    const std::string token = std::exchange(out.credentials, {}).token;  // TLS is for HOST:PORT
    out.credentials.token = token;
  } else {
    require_safe(recipe.listen, kKey, out.credentials);
    const HostPort address = host_and_port(recipe.listen);
    out.listener = Listener::tcp(address, kKey);
    const bool ipv6 = address.host.find(':') != std::string::npos;
    out.place.address = fmt::format("{}:{}", ipv6 ? "[" + address.host + "]" : address.host, out.listener->port());
    out.place.tls = out.credentials.tls();
  }
  out.place.socket = out.listener->path().string();
  return out;
}

}  // namespace

class Control::Impl {
 public:
  Impl(const runtime::Recipe& recipe, comm::World& world, const Note& say)
      : world_(world), memory_(world), recipe_(recipe.control) {
    Front front;
    comm::agree(world, [&] {
      if (world.rank() == 0) front = open_front(recipe.control);
    });
    if (world.rank() != 0) return;
    place_ = front.place;
    if (!front.refusal.empty()) say(fmt::format("control: off, as there is no place for a socket: {}", front.refusal));
    if (!front.listener) return;
    say(fmt::format("control: {}{}", place_.target(), place_.tls ? " (TLS)" : ""));
    run_.set_host(place_.host);
    run_.set_pid(place_.pid);
    run_.set_started(seconds_since_epoch());
    run_.set_zero_stage(recipe.zero.stage);
    if (recipe.checkpoint.dir) run_.set_checkpoint_dir(recipe.checkpoint.dir->string());
    board_.set_state(pb::STARTING);
    board_.describe(run_, recipe.training.max_steps.value_or(0), {}, 0);
    pump_ = start_quiet_thread("strata-control", [this, front = std::make_shared<Front>(std::move(front))](
                                                     const std::stop_token& stop) { serve(stop, *front); });
  }

  ~Impl() {
    pump_.request_stop();
    wake_.notify_all();
    if (pump_.joinable()) pump_.join();
    if (!file_.empty()) (void)::unlink(file_.c_str());
  }

  runtime::RankPlaces& places() { return memory_.places(); }
  Board& board() { return board_; }

  void planned(const runtime::Job& job, const std::string& text) {
    if (world_.rank() != 0) return;
    run_.set_family(job.model->family);
    run_.set_parameters(job.model->parameters());
    board_.describe(run_, job.recipe.training.max_steps.value_or(0), job.plan.memory, 0);
    pb::Plan plan;
    plan.set_text(text);
    plan.set_recipe(runtime::to_text(job.recipe));
    plan.set_tasks(static_cast<std::int32_t>(job.plan.tasks.size()));
    plan.set_hash(runtime::hash_of(job.plan));
    board_.describe(plan);
    memory_planned_ = job.plan.memory;
    max_steps_ = job.recipe.training.max_steps.value_or(0);
  }

  void settle(const std::filesystem::path& folder) {
    if (world_.rank() != 0 || !pump_.joinable()) return;
    AtomicFile file(folder / kPlaceFile);
    file.write(to_json(place_));
    file.commit();
    file_ = folder / kPlaceFile;
  }

  void train(std::int64_t step) {
    if (world_.rank() != 0) return;
    board_.describe(run_, max_steps_, memory_planned_, step);
    board_.set_state(pb::TRAINING);
  }

 private:
  void serve(const std::stop_token& stop, Front& front) {
    Service service(board_, front.credentials,
                    {[this](pb::Status& status) { fill_ranks(status); },
                     [](const std::function<void(pb::Dump)>& done) { done({}); }, !run_.checkpoint_dir().empty()});
    const Doorkeeper door(std::move(*front.listener), kMostConnections,
                          [&](Descriptor guest) { service.adopt(std::move(guest)); });
    std::mutex mutex;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      board_.collect();
      service.pump();
      wake_.wait_for(lock, 100ms);
    }
    board_.collect();
  }

  void fill_ranks(pb::Status& status) {
    const runtime::RankPlaces& here = memory_.places();
    const auto phase = here.phase.load(std::memory_order_relaxed);
    status.set_phase(runtime::kPhaseNames[static_cast<std::size_t>(phase)]);
    status.set_phase_done(here.counter.load(std::memory_order_relaxed));
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    status.set_phase_seconds(static_cast<double>(now - here.phase_since.load(std::memory_order_relaxed)) * 1e-9);
  }

  comm::World& world_;
  NodeMemory memory_;
  runtime::Recipe::Control recipe_;
  Board board_;
  Place place_;
  pb::RunInfo run_;
  runtime::Memory memory_planned_{};
  std::int64_t max_steps_ = 0;
  std::filesystem::path file_;
  std::condition_variable wake_;
  std::jthread pump_;
};

Control::Control(const runtime::Recipe& recipe, comm::World& world, const Note& say)
    : impl_(std::make_unique<Impl>(recipe, world, say)) {}
Control::~Control() = default;

void Control::enter(runtime::Phase phase) {
  impl_->places().enter(phase);
}
void Control::planned(const runtime::Job& job, const std::string& text) {
  impl_->planned(job, text);
}
void Control::settle(const std::filesystem::path& folder) {
  impl_->settle(folder);
}
void Control::train(runtime::Trainer& trainer) {
  enter(runtime::Phase::training);
  trainer.executor().publish(impl_->places(), trainer.steps_done());
  impl_->train(trainer.steps_done());
}
std::uint64_t Control::requests() {
  return impl_->board().take_requests();
}
void Control::stepped(const runtime::StepReport& report, const runtime::Executor& executor) {
  impl_->board().post(report, executor.comm_bytes(), executor.measured_memory());
}
void Control::saved(std::int64_t step, const std::filesystem::path& place) {
  impl_->board().post_saved(step, place.native());
}

}  // namespace strata::launcher::control
