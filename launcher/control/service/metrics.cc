#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/control/service/service.h"
#include "launcher/control/watch/background_thread.h"

namespace strata::launcher::control {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::size_t kMaxHeadBytes = 8 << 10;
constexpr auto kScrapeTimeout = std::chrono::seconds(1);
constexpr std::size_t kMaxScrapes = 64;

using Labels = std::vector<std::pair<std::string, std::string>>;

class Families {
 public:
  void add(const char* name, const char* help, MetricType type, double value, const Labels& labels = {}) {
    if (all_.empty() || all_.back().name != name) all_.push_back({name, help, type, {}});
    prometheus::ClientMetric metric;
    for (const auto& [key, text] : labels) {
      auto& label = metric.label.emplace_back();
      label.name = key;
      label.value = text;
    }
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    all_.back().metric.push_back(std::move(metric));
  }
  void gauge(const char* name, const char* help, double value, const Labels& labels = {}) {
    add(name, help, MetricType::Gauge, value, labels);
  }
  void counter(const char* name, const char* help, double value, const Labels& labels = {}) {
    add(name, help, MetricType::Counter, value, labels);
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(all_); }

 private:
  std::vector<MetricFamily> all_;
};

double number(std::uint64_t x) {
  return static_cast<double>(x);
}

template <typename T, void (*Free)(T*)>
struct Freed {
  void operator()(T* p) const { Free(p); }
};

using Certificate = std::unique_ptr<X509, Freed<X509, &X509_free>>;

std::unique_ptr<BIO, int (*)(BIO*)> bio_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}
Certificate next_certificate(BIO* text) {
  return Certificate(PEM_read_bio_X509(text, nullptr, nullptr, nullptr));
}

// Asks clients for a certificate signed by one of these authorities. A client may have none; if it needs one,
// answer_to() refuses it.
void ask_for_certificates(SSL_CTX* tls, const std::string& authorities) {
  const auto text = bio_of(authorities);
  while (const Certificate x = next_certificate(text.get())) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), x.get());
    SSL_CTX_add_client_CA(tls, x.get());
  }
  SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, nullptr);
}

}  // namespace

std::string metrics_text(const pb::Status& s) {
  Families f;
  f.gauge("strata_info", "Properties of the run; always 1.", 1,
          {{"family", s.run().family()},
           {"zero_stage", std::to_string(s.run().zero_stage())},
           {"host", s.run().host()},
           {"version", s.run().version()}});
  f.gauge("strata_parameters", "Parameters of the model.", number(s.run().parameters()));
  f.gauge("strata_start_time_seconds", "When the run started, since the epoch.", s.run().started());
  for (const auto& [state, name] : {std::pair(pb::STARTING, "starting"), std::pair(pb::TRAINING, "training"),
                                    std::pair(pb::STOPPING, "stopping"), std::pair(pb::ENDING, "ending")})
    f.gauge("strata_state", "1 for the state that the run is in.", s.state() == state ? 1 : 0, {{"state", name}});
  f.gauge("strata_step", "Steps done.", static_cast<double>(s.step()));
  f.gauge("strata_max_steps", "Number of steps of the run.", static_cast<double>(s.max_steps()));
  if (s.has_last()) {
    const pb::Step& last = s.last();
    f.gauge("strata_loss", "Loss of the newest step.", last.loss());
    f.gauge("strata_grad_norm", "Norm of the gradient of the newest step, before it was clipped.", last.grad_norm());
    f.gauge("strata_learning_rate", "Learning rate of the newest step.", last.learning_rate());
    f.gauge("strata_loss_scale", "Loss scale of the newest step.", last.loss_scale());
    f.gauge("strata_step_seconds", "Time of the newest step.", last.seconds());
    f.gauge("strata_disk_bytes", "Bytes read from and written to the nvme tier by rank 0 in the newest step.",
            number(last.disk_bytes()));
    f.gauge("strata_tokens_per_second", "Tokens per second of the newest steps, smoothed.", s.tokens_per_second());
    f.gauge("strata_remaining_seconds", "Time until the last step, at the rate of the newest steps.", s.seconds_left());
  }
  f.counter("strata_tokens_total", "Tokens trained on by this run of the program.", number(s.tokens()));
  f.counter("strata_overflow_skips_total", "Steps skipped because gradients or the forward were not finite.",
            static_cast<double>(s.skipped_steps()));
  for (const pb::Tier& tier : s.memory())
    f.gauge("strata_memory_bytes", "Peak memory in use on a rank.", number(tier.measured_bytes()),
            {{"tier", tier.name()}});
  for (const pb::Tier& tier : s.memory())
    f.gauge("strata_memory_planned_bytes", "Planned peak memory of a rank.", number(tier.planned_bytes()),
            {{"tier", tier.name()}});
  for (const pb::Rank& rank : s.ranks())
    f.gauge("strata_rank_compute_seconds", "Compute time of the rank in its newest step.", rank.compute_seconds(),
            {{"rank", std::to_string(rank.rank())}, {"node", rank.node()}});
  for (const pb::Rank& rank : s.ranks())
    f.gauge("strata_rank_place_seconds", "How long the rank has been in its current task.", rank.place_seconds(),
            {{"rank", std::to_string(rank.rank())}, {"node", rank.node()}});
  for (const pb::Node& node : s.nodes())
    f.gauge("strata_node_heard_seconds", "Time since the node was last heard from.", node.heard_seconds(),
            {{"node", node.name()}});
  for (const auto& [name, bytes] :
       {std::pair("all_gather", s.sent().all_gather()), std::pair("all_to_all", s.sent().all_to_all()),
        std::pair("broadcast", s.sent().broadcast()), std::pair("consensus", s.sent().consensus()),
        std::pair("point_to_point", s.sent().point_to_point())})
    f.counter("strata_sent_bytes_total", "Bytes sent by rank 0, by collective.", number(bytes), {{"collective", name}});
  if (s.has_checkpoint()) {
    f.gauge("strata_checkpoint_step", "Step of the newest durable checkpoint of this run.",
            static_cast<double>(s.checkpoint().step()));
    f.gauge("strata_checkpoint_age_seconds", "Time since that checkpoint became durable.",
            s.now() - s.checkpoint().time());
  }
  return f.text();
}

std::string answer_to(const std::string& head, const std::string& token, const std::function<std::string()>& metrics,
                      bool certified) {
  const auto reply = [](std::string_view status, std::string_view type, std::string_view body) {
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nX-Content-Type-Options: "
        "nosniff\r\n\r\n{}",
        status, type, body.size(), body);
  };
  constexpr std::string_view kPlain = "text/plain; charset=utf-8";
  const std::string line = head.substr(0, head.find("\r\n"));
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos || !line.substr(second + 1).starts_with("HTTP/1."))
    return reply("400 Bad Request", kPlain, "not an HTTP/1.1 request\n");
  if (line.substr(0, first) != "GET") return reply("405 Method Not Allowed", kPlain, "only GET is supported\n");
  std::string path = line.substr(first + 1, second - first - 1);
  path = path.substr(0, path.find('?'));
  if (path == "/healthz") return reply("200 OK", kPlain, "ok\n");
  if (!certified)
    return reply("401 Unauthorized", kPlain, "a certificate of an authority in control.tls_client_ca is missing\n");
  if (!token.empty()) {
    bool knows = false;
    for (std::size_t at = head.find("\r\n"); at != std::string::npos && at + 2 < head.size();
         at = head.find("\r\n", at + 2)) {
      const std::string field = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
      const std::size_t colon = field.find(':');
      std::string name = field.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      if (name != "authorization" || colon == std::string::npos) continue;
      const std::size_t value = field.find_first_not_of(' ', colon + 1);
      knows = knows || (value != std::string::npos && same_secret(field.substr(value), "Bearer " + token));
    }
    if (!knows) return reply("401 Unauthorized", kPlain, "the token is missing or wrong\n");
  }
  if (path == "/metrics") return reply("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics());
  return reply("404 Not Found", kPlain, "/metrics and /healthz\n");
}

namespace {

using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX, &SSL_CTX_free>>;

// Null without credentials.
Context context_of(const Credentials& credentials) {
  if (!credentials.tls()) return nullptr;
  Context tls(SSL_CTX_new(TLS_server_method()));
  const auto certs = bio_of(credentials.cert);
  const Certificate cert = next_certificate(certs.get());
  const std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, &EVP_PKEY_free>> key(
      PEM_read_bio_PrivateKey(bio_of(credentials.key).get(), nullptr, nullptr, nullptr));
  if (!tls || SSL_CTX_use_certificate(tls.get(), cert.get()) != 1 || SSL_CTX_use_PrivateKey(tls.get(), key.get()) != 1)
    fail(Exit::usage, "control.metrics: OpenSSL refuses the certificate of control.tls_cert");
  // The intermediate certificates, up to that of the authority.
  while (X509* next = PEM_read_bio_X509(certs.get(), nullptr, nullptr, nullptr))
    SSL_CTX_add_extra_chain_cert(tls.get(), next);
  SSL_CTX_set_min_proto_version(tls.get(), TLS1_2_VERSION);
  // Sessions are not resumed, because every connection must show its certificate.
  SSL_CTX_set_session_cache_mode(tls.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(tls.get(), SSL_OP_NO_TICKET);
  if (!credentials.client_ca.empty()) ask_for_certificates(tls.get(), credentials.client_ca);
  ERR_clear_error();  // reading past the last certificate leaves an error
  return tls;
}

// One connection, plain or TLS: reads a request's head and sends the answer.
class Connection {
 public:
  using Answer = std::function<std::string(const std::string& head, bool certified)>;

  Connection(Descriptor socket, SSL_CTX* tls)
      : socket_(std::move(socket)),
        port_(port_of_peer(socket_.get())),
        until_(std::chrono::steady_clock::now() + kScrapeTimeout) {
    if (!tls) return;
    ssl_.reset(SSL_new(tls));
    if (!ssl_ || SSL_set_fd(ssl_.get(), socket_.get()) != 1) throw std::bad_alloc();
    doing_ = Doing::greeting;
  }

  pollfd waits_for() const { return {socket_.get(), events_, 0}; }
  std::chrono::steady_clock::time_point until() const { return until_; }
  int port() const { return port_; }
  // Whether the complete request has been read.
  bool has_asked() const { return doing_ == Doing::writing; }

  // Continues as far as possible without waiting. False once the connection has ended.
  bool advance(const Answer& answer) {
    for (;;) {
      errno = 0;
      ERR_clear_error();
      int n = 0;
      if (doing_ == Doing::greeting) {
        n = SSL_accept(ssl_.get());
        if (n == 1) doing_ = Doing::reading;
      } else if (doing_ == Doing::reading) {
        std::array<char, 2048> piece{};
        n = ssl_ ? SSL_read(ssl_.get(), piece.data(), static_cast<int>(piece.size()))
                 : static_cast<int>(recv(socket_.get(), piece.data(), piece.size(), 0));
        if (n > 0) text_.append(piece.data(), static_cast<std::size_t>(n));
        const bool whole = text_.find("\r\n\r\n") != std::string::npos;
        if (whole || text_.size() >= kMaxHeadBytes) {
          text_ = answer(whole ? text_ : "too long", certified());
          doing_ = Doing::writing;
        }
      } else {
        const std::size_t left = text_.size() - written_;
        n = ssl_ ? SSL_write(ssl_.get(), text_.data() + written_, static_cast<int>(left))
                 : static_cast<int>(send(socket_.get(), text_.data() + written_, left, MSG_NOSIGNAL));
        if (n > 0) written_ += static_cast<std::size_t>(n);
        if (written_ == text_.size()) {
          if (ssl_) (void)SSL_shutdown(ssl_.get());
          (void)shutdown(socket_.get(), SHUT_WR);
          return false;
        }
      }
      if (n > 0) continue;
      if (ssl_) {
        const int why = SSL_get_error(ssl_.get(), n);
        events_ = why == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
        return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
      }
      if (n < 0 && errno == EINTR) continue;
      events_ = doing_ == Doing::writing ? POLLOUT : POLLIN;
      return n < 0 && errno == EAGAIN;
    }
  }

 private:
  // Any certificate here is valid, because OpenSSL ends handshakes with certificates that it does not trust.
  bool certified() const { return ssl_ && SSL_get0_peer_certificate(ssl_.get()) != nullptr; }

  enum class Doing : std::uint8_t { greeting, reading, writing };
  Descriptor socket_;
  int port_;  // the peer's port
  std::unique_ptr<SSL, Freed<SSL, &SSL_free>> ssl_;
  std::chrono::steady_clock::time_point until_;
  Doing doing_ = Doing::reading;
  short events_ = POLLIN;
  std::string text_;  // the request read so far, later the answer still to write
  std::size_t written_ = 0;
};

}  // namespace

class MetricsServer::Impl {
 public:
  Impl(Listener listener, const Credentials& credentials, std::function<pb::Status()> status)
      : token_(credentials.token),
        certificates_(!credentials.client_ca.empty()),
        status_(std::move(status)),
        tls_(context_of(credentials)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = start_background_thread("strata-metrics", [this](const std::stop_token& stop) { serve(stop); });
    const auto take = [this](Descriptor socket) {
      {
        const std::lock_guard lock(mutex_);
        accepted_.push_back(std::move(socket));
      }
      wake();
    };
    // Close connections that have not sent a request yet when new ones arrive, so that a flood of unfinished requests
    // cannot lock out a probe.
    const auto has_asked = [this](int port) {
      const std::lock_guard lock(mutex_);
      return asked_.contains(port);
    };
    limiter_.emplace(std::move(listener), kMaxScrapes, take, Proof{kScrapeTimeout, has_asked});
  }
  ~Impl() {
    limiter_.reset();
    thread_.request_stop();
    wake();
    thread_.join();
  }

 private:
  void wake() { (void)eventfd_write(wake_.get(), 1); }

  void serve(const std::stop_token& stop) {
    const auto answer = [this](const std::string& head, bool certified) {
      return answer_to(
          head, token_, [this] { return metrics_text(status_()); }, certified || !certificates_);
    };
    std::list<Connection> connections;
    std::vector<pollfd> waits;
    while (!stop.stop_requested()) {
      waits.assign(1, {wake_.get(), POLLIN, 0});
      auto first = std::chrono::steady_clock::time_point::max();
      for (const Connection& connection : connections) {
        waits.push_back(connection.waits_for());
        first = std::min(first, connection.until());
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - std::chrono::steady_clock::now());
      (void)poll(waits.data(), waits.size(), connections.empty() ? -1 : std::max(0, static_cast<int>(left.count())));
      const auto now = std::chrono::steady_clock::now();
      std::size_t at = 0;
      for (auto connection = connections.begin(); connection != connections.end();) {
        const bool ready = waits[++at].revents != 0, asked_before = connection->has_asked();
        const bool over = (ready && !connection->advance(answer)) || now >= connection->until();
        if (connection->has_asked() && (over || !asked_before)) {
          const std::lock_guard lock(mutex_);
          if (over)
            asked_.erase(connection->port());
          else
            asked_.insert(connection->port());
        }
        connection = over ? connections.erase(connection) : std::next(connection);
      }
      eventfd_t ignored = 0;
      (void)eventfd_read(wake_.get(), &ignored);
      const std::lock_guard lock(mutex_);
      for (Descriptor& socket : accepted_) connections.emplace_back(std::move(socket), tls_.get());
      accepted_.clear();
    }
  }

  const std::string token_;
  const bool certificates_;  // clients must show one
  const std::function<pb::Status()> status_;
  const Context tls_;
  const Descriptor wake_;
  std::mutex mutex_;
  std::vector<Descriptor> accepted_;  // accepted but not inspected yet
  std::set<int> asked_;               // ports of peers that are being answered
  std::optional<ConnectionLimiter> limiter_;
  std::jthread thread_;
};

MetricsServer::MetricsServer(Listener listener, const Credentials& credentials, std::function<pb::Status()> status)
    : impl_(std::make_unique<Impl>(std::move(listener), credentials, std::move(status))) {}
MetricsServer::~MetricsServer() = default;

}  // namespace strata::launcher::control
