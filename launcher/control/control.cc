#include "launcher/control/control.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/quantity.h"
#include "comm/agreement.h"
#include "launcher/control/board.h"
#include "launcher/control/service/endpoints.h"
#include "launcher/control/service/listener.h"
#include "launcher/control/service/service.h"
#include "launcher/control/watch/hub.h"
#include "launcher/control/watch/node_memory.h"
#include "launcher/control/watch/rank_monitor.h"
#include "launcher/median.h"
#include "launcher/screen/printable.h"
#include "launcher/screen/run_text.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher::control {
namespace {

constexpr std::size_t kMaxConnections = 128;  // connections of users and tools
constexpr std::chrono::seconds kToShowToken{10};
constexpr std::size_t kMaxTimes = 1 << 16;

// Makes the path absolute, because its readers have another current folder.
std::filesystem::path as_others_see(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole;
}

// The message that rank 0 sends to the others over MPI at the start: the addresses of its streams, and the credentials
// for them. Fields are separated by zero bytes, which no field contains.
std::string join(std::initializer_list<std::string> fields) {
  std::string out;
  for (const std::string& field : fields) out += field + '\0';
  return out;
}
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) out.emplace_back(text.c_str() + at);
  return out;
}

}  // namespace

class Control::Impl {
 public:
  Impl(const runtime::Recipe& recipe, comm::World& world, const Note& say)
      : rank_(world.rank()), keeps_(recipe.checkpoint.dir.has_value()), memory_(world) {
    const runtime::Recipe::Control& asked = recipe.control;
    const bool nodes = memory_.map().nodes.size() > 1;
    Endpoints endpoints;
    std::optional<Listener> streams;
    Credentials own;
    std::string target;
    comm::agree(world, [&] {
      if (rank_ != 0) return;
      endpoints = open_endpoints(asked);
      if (!nodes) {
        if (asked.interface.empty()) return;
        try {
          (void)addresses_of(asked.interface);
        } catch (const Error& error) {
          say(fmt::format("{}; a run on one node needs none", error.what()));
        }
        return;
      }
      const std::vector<std::string> addresses = addresses_of(asked.interface);
      streams = Listener::tcp({asked.interface.empty() ? "0.0.0.0" : addresses.front(), 0}, "control.interface");
      own = make_credentials();
      target = grpc_target(addresses, streams->port());
    });
    const bool on =
        endpoints.service || endpoints.metrics || asked.timeout > 0 || asked.warn_after > 0 || asked.stuck_after > 0;
    const std::vector<std::string> settings = split(world.exchange(
        rank_ == 0 ? join({on ? "on" : "off", target, own.cert, own.key, own.token, std::to_string(asked.timeout)})
                   : "")[0]);
    STRATA_CHECK_EQ(settings.size(), 6U);
    if (settings[0] == "off") return;
    RankMonitor::Setup setup;
    setup.token = &world.abort_token();
    setup.timeout = std::stod(settings[5]);
    setup.rank0 = fmt::format("rank 0 on {}", memory_.map().of(0).name);
    setup.target = settings[1];
    setup.credentials = {settings[2], settings[3], "", settings[4]};
    if (rank_ == 0) {
      if (!memory_.apart().empty())
        say(
            fmt::format("control: ranks of one machine cannot map each other's memory, so each reports over the "
                        "network, as a node of its own ({})",
                        memory_.apart()));
      address_ = endpoints.address;
      if (!endpoints.refusal.empty())
        say(fmt::format("control: off, because no socket can be created: {}", endpoints.refusal));
      if (endpoints.service) reached_ = wrapped("control", {address_.grpc_target() + (address_.tls ? " (TLS)" : "")});
      if (endpoints.metrics) reached_.push_back(wrapped("metrics", {endpoints.metrics_at})[0]);
      describe(recipe);
      Hub::Setup hub;
      hub.limits = {asked.timeout, asked.warn_after, asked.stuck_after};
      hub.listener = std::move(streams);
      hub.credentials = own;
      hub.dump_folder = recipe.checkpoint.dir ? recipe.checkpoint.dir->string() : ".";
      hub.say = say;
      hub.end = [this](const NodeMemory::Verdict& verdict) { memory_.give(verdict); };
      hub_.emplace(memory_, board_, std::move(hub));
      setup.receive = [this](const pb::NodeReport& report) { hub_->receive(report); };
      setup.dump_number = [this] { return hub_->dump_number(); };
      // The rank monitor's thread starts gRPC's threads, so that they inherit its low priority. It does so before the
      // run starts its own threads, so that a limit on threads causes a failure here, where it is reported clearly.
      setup.start = [this, &endpoints] { open(endpoints); };
      setup.tick = [this](bool resumed) {
        board_.collect();
        if (service_) service_->pump();
        hub_->look(resumed);
      };
    }
    monitor_.emplace(memory_, std::move(setup));
  }

  ~Impl() {
    memory_.progress().enter(runtime::Phase::ending);
    if (!file_.empty()) (void)::unlink(file_.c_str());
    monitor_.reset();
    board_.collect();
    limiter_.reset();
    metrics_.reset();
    if (hub_) hub_->leave();
    service_.reset();
  }

  runtime::RankProgress& progress() { return memory_.progress(); }
  Board& board() { return board_; }
  bool is_on() const { return monitor_.has_value(); }

  void planned(const runtime::Job& job, comm::World& world) {
    if (!is_on() && job.plan.mesh().stages == 1) return;
    const TaskNames names(job.plan, *job.model, world);
    if (!is_on()) return;
    monitor_->set_names(names);
    if (rank_ != 0) return;
    for (const std::string& line : reached_) note(line);
    hub_->set_names(names);
    run_.set_family(job.model->family);
    run_.set_parameters(job.model->parameters());
    run_.set_device(job.plan.device.kind == device::Kind::cpu ? "cpu" : "cuda");
    max_steps_ = job.recipe.training.max_steps.value_or(0);
    planned_ = job.plan.memory;
    board_.describe(run_, max_steps_, planned_, 0);
    pb::Plan plan;
    plan.set_text(fmt::format("{} of {} parameters, {} on {}, {}\n", job.model->family,
                              count_text(job.model->parameters()),
                              zero_text(job.recipe.zero.stage, job.plan.mesh().data(), job.plan.ranks()),
                              counted(memory_.map().nodes.size(), "node"), runtime::memory_text(job.plan)));
    plan.set_recipe(runtime::to_text(job.complete_recipe()));
    plan.set_tasks(static_cast<std::int32_t>(job.plan.tasks.size()));
    plan.set_hash(runtime::hash_of(job.plan));
    board_.describe(plan);
  }

  // Written atomically, so that a reader gets the whole file or none.
  bool write_address(const std::filesystem::path& folder) {
    if (rank_ != 0 || address_.grpc_target().empty()) return true;
    file_ = folder / kAddressFile;
    try {
      AtomicFile out(file_);
      out.write(to_json(address_));
      out.commit();
      return true;
    } catch (const Error&) {
      file_.clear();
      return false;
    }
  }

  void stepped() {
    if (!is_on()) return;
    const double ms = static_cast<double>(progress().compute.load(std::memory_order_relaxed)) * 1e-6;
    if (compute_ms_.size() < kMaxTimes)
      compute_ms_.push_back(ms);
    else
      compute_ms_[timed_ % kMaxTimes] = ms;
    ++timed_;
  }
  double compute_ms() const { return compute_ms_.empty() ? 0 : median_of(compute_ms_); }

  void train(std::int64_t step) {
    if (rank_ != 0) return;
    board_.describe(run_, max_steps_, planned_, step);
    board_.set_state(pb::TRAINING);
  }

 private:
  void describe(const runtime::Recipe& recipe) {
    run_.set_host(address_.host);
    run_.set_pid(address_.pid);
    run_.set_started(seconds_since_epoch());
    run_.set_version(STRATA_VERSION);
    run_.set_zero_stage(recipe.zero.stage);
    if (recipe.checkpoint.dir) run_.set_checkpoint_dir(as_others_see(*recipe.checkpoint.dir).string());
    board_.set_state(pb::STARTING);
    board_.describe(run_, recipe.training.max_steps.value_or(0), {}, 0);
  }

  void open(Endpoints& endpoints) {
    hub_->open();
    if (endpoints.metrics)
      metrics_.emplace(std::move(*endpoints.metrics), endpoints.metrics_credentials, [this] {
        pb::Status status = board_.status();
        fill(status);
        return status;
      });
    if (!endpoints.service) return;
    service_.emplace(
        board_, endpoints.credentials,
        Service::Sources{[this](pb::Status& status) { fill(status); },
                         [this](std::function<void(pb::Dump)> done) { hub_->dump(std::move(done)); }, keeps_});
    limiter_.emplace(
        std::move(*endpoints.service), kMaxConnections,
        [this](Descriptor connection) { service_->adopt(std::move(connection)); },
        Proof{kToShowToken, [this](int port) { return service_->is_authenticated(port); }});
  }

  void fill(pb::Status& status) {
    const runtime::RankProgress& here = memory_.progress();
    status.set_phase(runtime::kPhaseNames[static_cast<std::size_t>(here.phase.load(std::memory_order_relaxed))]);
    status.set_phase_done(here.counter.load(std::memory_order_relaxed));
    const double since = static_cast<double>(here.phase_since.load(std::memory_order_relaxed)) * 1e-9;
    status.set_phase_seconds(since > 0 ? steady_seconds() - since : 0);
    // The newest report of this node may be older than the newest step.
    hub_->receive(report_of(memory_, SteadyClock::now().time_since_epoch().count()));
    hub_->fill(status);
  }

  const int rank_;
  const bool keeps_;  // whether it writes checkpoints
  NodeMemory memory_;
  Board board_;
  ServiceAddress address_;
  std::vector<std::string> reached_;  // lines that say where the run can be reached
  pb::RunInfo run_;
  runtime::Memory planned_{};
  std::int64_t max_steps_ = 0;
  std::filesystem::path file_;
  std::vector<double> compute_ms_;  // the times of this rank's newest steps
  std::size_t timed_ = 0;           // the number of steps timed so far
  std::optional<Hub> hub_;
  std::optional<Service> service_;
  std::optional<ConnectionLimiter> limiter_;
  std::optional<MetricsServer> metrics_;
  std::optional<RankMonitor> monitor_;
};

Control::Control(const runtime::Recipe& recipe, comm::World& world, const Note& say)
    : impl_(std::make_unique<Impl>(recipe, world, say)) {
  enter(runtime::Phase::starting);
}
Control::~Control() = default;

void Control::enter(runtime::Phase phase) {
  impl_->progress().enter(phase);
}
void Control::planned(const runtime::Job& job, comm::World& world) {
  impl_->planned(job, world);
}
bool Control::write_address(const std::filesystem::path& folder) {
  return impl_->write_address(folder);
}
void Control::train(runtime::Trainer& trainer) {
  if (impl_->is_on()) trainer.executor().publish(impl_->progress(), trainer.steps_done());
  enter(runtime::Phase::training);
  impl_->train(trainer.steps_done());
}
std::uint64_t Control::requests() {
  return impl_->board().take_requests();
}
std::uint64_t Control::take_stop() {
  return impl_->board().take_stop();
}
std::uint64_t Control::stop_requested() const {
  return impl_->board().stop_requested();
}
void Control::stepped(const runtime::StepReport& report, const runtime::Executor& executor) {
  impl_->stepped();
  impl_->board().post(report, executor.comm_bytes(), executor.measured_memory());
}
void Control::evaluated_round() {
  if (impl_->progress().phase.load() != runtime::Phase::evaluating) enter(runtime::Phase::evaluating);
  impl_->progress().count();
}
void Control::evaluated() {
  if (impl_->progress().phase.load() == runtime::Phase::evaluating) enter(runtime::Phase::training);
}
double Control::compute_ms() const {
  return impl_->compute_ms();
}
void Control::saved(std::int64_t step, const std::filesystem::path& place) {
  impl_->board().post_saved(step, as_others_see(place).native());
}

}  // namespace strata::launcher::control
