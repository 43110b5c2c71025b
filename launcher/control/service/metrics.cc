#include "launcher/control/service/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::launcher::control {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::size_t kMostHead = 8 << 10;
constexpr auto kPatience = std::chrono::seconds(1);
constexpr std::size_t kMostVisitors = 16;

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

// Of visitors: one that an authority among these has signed.
void ask_for_certificates(SSL_CTX* tls, const std::string& authorities) {
  const std::unique_ptr<BIO, int (*)(BIO*)> text(
      BIO_new_mem_buf(authorities.data(), static_cast<int>(authorities.size())), &BIO_free);
  for (;;) {
    const std::unique_ptr<X509, void (*)(X509*)> x(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr),
                                                   &X509_free);
    if (!x) break;
    X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), x.get());
    SSL_CTX_add_client_CA(tls, x.get());
  }
  SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
}

}  // namespace

std::string metrics_text(const pb::Status& s) {
  Families f;
  f.gauge("strata_info", "What the run trains; always 1.", 1,
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
  f.gauge("strata_max_steps", "Steps to be done.", static_cast<double>(s.max_steps()));
  if (s.has_last()) {
    const pb::Step& last = s.last();
    f.gauge("strata_loss", "Loss of the newest step.", last.loss());
    f.gauge("strata_grad_norm", "Norm of the gradient of the newest step, before it was clipped.", last.grad_norm());
    f.gauge("strata_learning_rate", "Learning rate of the newest step.", last.learning_rate());
    f.gauge("strata_loss_scale", "Loss scale of the newest step.", last.loss_scale());
    f.gauge("strata_step_seconds", "What the newest step took.", last.seconds());
    f.gauge("strata_disk_bytes", "Read from and written to the nvme tier by rank 0 in the newest step.",
            number(last.disk_bytes()));
    f.gauge("strata_tokens_per_second", "Of the newest steps, smoothed.", s.tokens_per_second());
    f.gauge("strata_remaining_seconds", "Until the last step, at the rate of the newest ones.", s.seconds_left());
  }
  f.counter("strata_tokens_total", "Tokens trained on by this run of the program.", number(s.tokens()));
  f.counter("strata_overflow_skips_total", "Steps skipped as their gradients overflowed.",
            static_cast<double>(s.skipped_steps()));
  for (const pb::Tier& tier : s.memory())
    f.gauge("strata_memory_bytes", "The most memory of a rank that was in use.", number(tier.measured_bytes()),
            {{"tier", tier.name()}});
  for (const pb::Tier& tier : s.memory())
    f.gauge("strata_memory_planned_bytes", "Memory of a rank that was planned.", number(tier.planned_bytes()),
            {{"tier", tier.name()}});
  for (const pb::Rank& rank : s.ranks())
    f.gauge("strata_rank_compute_seconds", "What the rank computed in its newest step.", rank.compute_seconds(),
            {{"rank", std::to_string(rank.rank())}, {"node", rank.node()}});
  for (const pb::Rank& rank : s.ranks())
    f.gauge("strata_rank_place_seconds", "For how long the rank has been in what it is in.", rank.place_seconds(),
            {{"rank", std::to_string(rank.rank())}, {"node", rank.node()}});
  for (const pb::Node& node : s.nodes())
    f.gauge("strata_node_heard_seconds", "Since the node was heard of.", node.heard_seconds(), {{"node", node.name()}});
  for (const auto& [name, bytes] :
       {std::pair("all_gather", s.sent().all_gather()), std::pair("all_to_all", s.sent().all_to_all()),
        std::pair("broadcast", s.sent().broadcast()), std::pair("consensus", s.sent().consensus())})
    f.counter("strata_sent_bytes_total", "Sent by rank 0, by collective.", number(bytes), {{"collective", name}});
  if (s.has_checkpoint()) {
    f.gauge("strata_checkpoint_step", "Step of the newest durable checkpoint of this run.",
            static_cast<double>(s.checkpoint().step()));
    f.gauge("strata_checkpoint_age_seconds", "Since it was durable.", s.now() - s.checkpoint().time());
  }
  return f.text();
}

std::string answer_to(const std::string& head, const std::string& token, const std::function<std::string()>& metrics) {
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
    return reply("400 Bad Request", kPlain, "no HTTP/1.1 request\n");
  if (line.substr(0, first) != "GET") return reply("405 Method Not Allowed", kPlain, "GET alone\n");
  std::string path = line.substr(first + 1, second - first - 1);
  path = path.substr(0, path.find('?'));
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
  if (path == "/healthz") return reply("200 OK", kPlain, "ok\n");
  return reply("404 Not Found", kPlain, "/metrics and /healthz\n");
}

// One connection, plain or by TLS, whose calls end when its second is over.
class MetricsServer::Visit {
 public:
  Visit(Descriptor guest, SSL_CTX* tls)
      : guest_(std::move(guest)), until_(std::chrono::steady_clock::now() + kPatience) {
    if (!tls) return;
    ssl_.reset(SSL_new(tls));
    if (!ssl_ || SSL_set_fd(ssl_.get(), guest_.get()) != 1) throw Error(Exit::failed, "no TLS");
    if (again([&] { return SSL_accept(ssl_.get()); }) != 1) throw Error(Exit::failed, "no TLS");
  }

  // Up to the empty line; empty if none came.
  std::string head() {
    std::string text;
    std::array<char, 2048> piece{};
    while (text.size() < kMostHead && text.find("\r\n\r\n") == std::string::npos) {
      const int n = again([&] {
        return ssl_ ? SSL_read(ssl_.get(), piece.data(), static_cast<int>(piece.size()))
                    : static_cast<int>(recv(guest_.get(), piece.data(), piece.size(), 0));
      });
      if (n <= 0) return {};
      text.append(piece.data(), static_cast<std::size_t>(n));
    }
    return text.find("\r\n\r\n") == std::string::npos ? "too long" : text;
  }

  void send_all(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const int n = again([&] {
        return ssl_ ? SSL_write(ssl_.get(), text.data() + at, static_cast<int>(text.size() - at))
                    : static_cast<int>(send(guest_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL));
      });
      if (n <= 0) return;
      at += static_cast<std::size_t>(n);
    }
    if (ssl_) (void)SSL_shutdown(ssl_.get());
    (void)shutdown(guest_.get(), SHUT_WR);
  }

 private:
  // The call, and once more whenever the socket is ready for it.
  template <typename F>
  int again(const F& call) {
    for (;;) {
      errno = 0;
      const int n = call();
      if (n > 0) return n;
      short events = POLLIN;
      if (ssl_) {
        const int why = SSL_get_error(ssl_.get(), n);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return -1;
        events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        return -1;
      } else {
        events = POLLIN | POLLOUT;
      }
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until_ - std::chrono::steady_clock::now());
      pollfd wait{guest_.get(), events, 0};
      if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return -1;
      // Ready to be written is no sign of something to read.
      if (!ssl_ && (wait.revents & POLLIN) == 0) (void)poll(nullptr, 0, 5);
    }
  }

  Descriptor guest_;
  std::unique_ptr<SSL, Freed<SSL, &SSL_free>> ssl_;
  std::chrono::steady_clock::time_point until_;
};

MetricsServer::MetricsServer(Listener listener, const Credentials& credentials, std::function<pb::Status()> status)
    : credentials_(credentials),
      status_(std::move(status)),
      tls_(nullptr, [](void* p) { SSL_CTX_free(static_cast<SSL_CTX*>(p)); }) {
  if (credentials_.tls()) {
    tls_.reset(SSL_CTX_new(TLS_server_method()));
    auto* tls = static_cast<SSL_CTX*>(tls_.get());
    const std::unique_ptr<BIO, int (*)(BIO*)> cert(
        BIO_new_mem_buf(credentials_.cert.data(), static_cast<int>(credentials_.cert.size())), &BIO_free);
    const std::unique_ptr<BIO, int (*)(BIO*)> key(
        BIO_new_mem_buf(credentials_.key.data(), static_cast<int>(credentials_.key.size())), &BIO_free);
    const std::unique_ptr<X509, void (*)(X509*)> x(PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr),
                                                   &X509_free);
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> k(
        PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
    if (!tls || SSL_CTX_use_certificate(tls, x.get()) != 1 || SSL_CTX_use_PrivateKey(tls, k.get()) != 1)
      fail(Exit::usage, "control.metrics: OpenSSL refuses the certificate of control.tls_cert");
    // Certificates between it and its authority's.
    while (X509* next = PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr))
      SSL_CTX_add_extra_chain_cert(tls, next);
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    if (!credentials_.client_ca.empty()) ask_for_certificates(tls, credentials_.client_ca);
  }
  door_ = std::make_unique<Doorkeeper>(std::move(listener), kMostVisitors,
                                       [this](Descriptor guest) { answer(std::move(guest)); });
}

MetricsServer::~MetricsServer() {
  door_.reset();
}

void MetricsServer::answer(Descriptor guest) {
  try {
    Visit visit(std::move(guest), static_cast<SSL_CTX*>(tls_.get()));
    const std::string head = visit.head();
    if (!head.empty()) visit.send_all(answer_to(head, credentials_.token, [this] { return metrics_text(status_()); }));
  } catch (const Error&) {
    // A visitor without TLS.
  }
}

}  // namespace strata::launcher::control
