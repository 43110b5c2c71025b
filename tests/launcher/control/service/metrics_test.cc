#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "launcher/control/service/service.h"

namespace strata::launcher::control {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

pb::Status status() {
  pb::Status s;
  s.set_state(pb::TRAINING);
  s.set_step(12);
  s.set_now(100);
  s.mutable_last()->set_loss(2.5);
  s.mutable_last()->set_seconds(0.25);
  pb::Rank& rank = *s.add_ranks();
  rank.set_rank(5);
  rank.set_node("n\"3\n");
  rank.set_compute_seconds(0.125);
  s.mutable_checkpoint()->set_path("/ck");
  s.mutable_checkpoint()->set_time(90);
  return s;
}

// Reads give up after half a minute.
Descriptor connected(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  const timeval wait{30, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// Sends the text and reads until the end.
std::string ask(int port, const std::string& text) {
  const Descriptor socket = connected(port);
  (void)send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  std::string out;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = recv(socket.get(), piece.data(), piece.size(), 0)) > 0;)
    out.append(piece.data(), static_cast<std::size_t>(n));
  return out;
}

TEST(MetricsTest, NamesHaveUnitsAndOneHelpLine) {
  const std::string text = metrics_text(status());
  EXPECT_THAT(text, HasSubstr("# TYPE strata_loss gauge\nstrata_loss 2.5\n"));
  EXPECT_THAT(text, HasSubstr("strata_step_seconds 0.25\n"));
  EXPECT_THAT(text, HasSubstr("strata_rank_compute_seconds{rank=\"5\",node=\"n\\\"3\\n\"} 0.125\n"));
  EXPECT_THAT(text, HasSubstr("strata_checkpoint_age_seconds 10\n"));
  EXPECT_THAT(text, HasSubstr("strata_state{state=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE strata_tokens_total counter\n"));
  const std::regex line("(# (HELP|TYPE) [a-z_]+ .*|[a-z_]+(\\{.*\\})? [-+0-9.e]+)");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_TRUE(std::regex_match(text.substr(at, end - at), line)) << text.substr(at, end - at);
    at = end + 1;
  }
}

TEST(MetricsTest, AnswersOnlyValidRequests) {
  const auto metrics = [] { return std::string("m\n"); };
  const auto code = [&](const std::string& head, const std::string& token = "") {
    return answer_to(head, token, metrics).substr(9, 3);
  };
  EXPECT_EQ(code("GET /metrics HTTP/1.1\r\n\r\n"), "200");
  EXPECT_EQ(code("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "200");
  EXPECT_EQ(code("GET /healthz HTTP/1.1\r\n\r\n"), "200");
  EXPECT_EQ(code("GET /../etc/passwd HTTP/1.1\r\n\r\n"), "404");
  EXPECT_EQ(code("GET / HTTP/1.1\r\n\r\n"), "404");
  EXPECT_EQ(code("POST /metrics HTTP/1.1\r\n\r\n"), "405");
  EXPECT_EQ(code("too long"), "400");
  EXPECT_EQ(code("\r\n\r\n"), "400");
  EXPECT_EQ(code("GET /metrics HTTP/1.1\r\n\r\n", "secret"), "401");
  EXPECT_EQ(code("GET / HTTP/1.1\r\n\r\n", "secret"), "401");
  EXPECT_EQ(code("GET /metrics HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n", "secret"), "401");
  EXPECT_EQ(code("GET /metrics HTTP/1.1\r\nHost: x\r\nauthorization: Bearer secret\r\n\r\n", "secret"), "200");
  EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\n\r\n", "", metrics), HasSubstr("Content-Length: 2\r\n"));
}

// The probes of load balancers and orchestrators have no secret.
TEST(MetricsTest, AnswersHealthChecksOfAnyone) {
  const auto metrics = [] { return std::string("m\n"); };
  for (const bool certified : {false, true}) {
    const std::string answer = answer_to("GET /healthz HTTP/1.1\r\n\r\n", "secret", metrics, certified);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK"));
    EXPECT_THAT(answer, testing::EndsWith("\r\n\r\nok\n"));
  }
  EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n", "secret", metrics, false),
              StartsWith("HTTP/1.1 401"));
}

TEST(MetricsTest, ServesDespiteSilentClients) {
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const int port = listener.port();
  const MetricsServer server(std::move(listener), {}, status);
  EXPECT_THAT(ask(port, "GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(ask(port, "GET /metrics HTTP/1.1\r\n"), "") << "disconnected after a second";
  EXPECT_THAT(ask(port, std::string(20'000, 'x')), testing::AnyOf(StartsWith("HTTP/1.1 400"), ""));
  EXPECT_THAT(ask(port, "GET /healthz HTTP/1.1\r\n\r\n"), HasSubstr("\r\n\r\nok\n"));
}

TEST(MetricsTest, CredentialsAllowOnlyTls) {
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const int port = listener.port();
  const MetricsServer server(std::move(listener), make_credentials(), status);
  EXPECT_THAT(ask(port, "GET /metrics HTTP/1.1\r\n\r\n"), testing::Not(HasSubstr("strata_loss")));
}

// There are too many clients to serve one after another, with a second for each.
TEST(MetricsTest, AnswersDespiteManySilentClients) {
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const int port = listener.port();
  const MetricsServer server(std::move(listener), {}, status);
  std::vector<Descriptor> idle;
  for (int i = 0; i < 30; ++i) idle.push_back(connected(port));
  EXPECT_THAT(ask(port, "GET /healthz HTTP/1.1\r\n\r\n"), HasSubstr("\r\n\r\nok\n"));
}

// Clients send half a request and keep the connection open, repeatedly, and many more of them than the server admits.
TEST(MetricsTest, AnswersEachProbeDespiteUnfinishedRequests) {
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const int port = listener.port();
  const MetricsServer server(std::move(listener), {}, status);
  std::vector<Descriptor> flood;
  for (int i = 0; i < 8; ++i) {
    for (int k = 0; k < 90; ++k) {
      flood.push_back(connected(port));
      (void)send(flood.back().get(), "GET /h", 6, MSG_NOSIGNAL);
    }
    ASSERT_THAT(ask(port, "GET /healthz HTTP/1.1\r\n\r\n"), HasSubstr("\r\n\r\nok\n")) << i;
    ASSERT_THAT(ask(port, "GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("strata_loss")) << i;
    if (flood.size() > 300) flood.erase(flood.begin(), flood.begin() + 90);
  }
}

// The server's answer to a client that shows this certificate, if it gets one.
std::string ask_by_tls(int port, const Credentials& own, const std::string& token,
                       const std::string& path = "/metrics") {
  (void)std::signal(SIGPIPE, SIG_IGN);  // the server may close the connection before the request
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (own.tls()) {
    const auto bio = [](const std::string& text) {
      return std::unique_ptr<BIO, decltype(&BIO_free)>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                       &BIO_free);
    };
    const std::unique_ptr<X509, decltype(&X509_free)> cert(
        PEM_read_bio_X509(bio(own.cert).get(), nullptr, nullptr, nullptr), &X509_free);
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        PEM_read_bio_PrivateKey(bio(own.key).get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
    EXPECT_EQ(SSL_CTX_use_certificate(tls.get(), cert.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(tls.get(), key.get()), 1);
  }
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> way(BIO_new_ssl_connect(tls.get()), &BIO_free_all);
  BIO_set_conn_hostname(way.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
  const std::string head = "GET " + path + " HTTP/1.1\r\nAuthorization: Bearer " + token + "\r\n\r\n";
  if (BIO_write(way.get(), head.data(), static_cast<int>(head.size())) <= 0) return "";
  std::string out;
  char piece[1024];
  for (int n = 0; (n = BIO_read(way.get(), piece, sizeof piece)) > 0;) out.append(piece, static_cast<std::size_t>(n));
  return out;
}

// control.tls_client_ca also applies to readers of the metrics.
TEST(MetricsTest, AClientAuthorityAdmitsOnlyItsClients) {
  Credentials own = make_credentials();
  const Credentials client = make_credentials();
  own.client_ca = client.cert;
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const int port = listener.port();
  const MetricsServer server(std::move(listener), own, status);
  EXPECT_THAT(ask_by_tls(port, client, own.token), HasSubstr("strata_loss"));
  EXPECT_THAT(ask_by_tls(port, {}, own.token), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask_by_tls(port, {}, "", "/healthz"), testing::EndsWith("\r\n\r\nok\n"));
  EXPECT_EQ(ask_by_tls(port, make_credentials(), own.token), "");
  EXPECT_THAT(ask_by_tls(port, client, "another"), StartsWith("HTTP/1.1 401"));
}

}  // namespace
}  // namespace strata::launcher::control
