// Tests which credentials callers of the service need: tokens, certificates, handshakes.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "launcher/control/client/client.h"
#include "launcher/control/control.grpc.pb.h"
#include "launcher/control/service/credentials.h"
#include "launcher/control/service/listener.h"
#include "tests/failure.h"
#include "tests/launcher/control/service/service_case.h"

namespace strata::launcher::control {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using tests::failure_of;

class ServiceAccessTest : public ServiceCase {};

TEST_F(ServiceAccessTest, EveryCallNeedsTheToken) {
  open({"", "", "", "0123456789abcdef0123"});
  for (const char* token : {"", "wrong", "0123456789abcdef012", "0123456789abcdef01234"}) {
    Client client(target(token));
    EXPECT_EQ(failure_of([&] { (void)client.status(); }).code(), Exit::usage) << token;
    EXPECT_EQ(failure_of([&] { (void)client.plan(); }).code(), Exit::usage) << token;
    EXPECT_EQ(failure_of([&] { (void)client.stop(true); }).code(), Exit::usage) << token;
    EXPECT_EQ(failure_of([&] { (void)client.checkpoint(); }).code(), Exit::usage) << token;
    EXPECT_EQ(failure_of([&] { (void)client.dump(); }).code(), Exit::usage) << token;
    EXPECT_EQ(failure_of([&] { (void)client.watch(1, [](const pb::Step&) { return true; }); }).code(), Exit::usage);
  }
  EXPECT_EQ(board_.take_requests(), 0U);
  EXPECT_EQ(Client(target("0123456789abcdef0123")).status().max_steps(), 100);
}

TEST_F(ServiceAccessTest, SpeaksTlsToClientsThatTrustItsCertificate) {
  Credentials own = make_credentials();
  const Credentials foreign = make_credentials();
  const std::string token = own.token;
  open(own, true, true);
  const std::string port = address_.substr(address_.find(':') + 1);
  // The certificate is for the name strata-run. The client knows the name only because it has the authority.
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = own.cert;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("strata-run");
  const auto known = grpc::CreateCustomChannel(address_, grpc::SslCredentials(options), arguments);
  EXPECT_TRUE(known->WaitForConnected(std::chrono::system_clock::now() + 20s));
  EXPECT_THAT(failure_of([&] {
                (void)Client({address_, true, foreign.cert, "", "", token}).status();
              }).what(),
              HasSubstr("give the authority's with --ca"));
  EXPECT_THAT(failure_of([&] {
                (void)Client({address_, true, own.cert, "", "", token}).status();
              }).what(),
              HasSubstr("use a name that it contains"));
  EXPECT_THAT(failure_of([&] {
                (void)Client({address_, false, "", "", "", token}).status();
              }).what(),
              HasSubstr("If the run uses TLS, pass --ca CERT"))
      << "plain text to the port of TLS";
}

// The same certificate, but expired an hour ago.
std::string expired(const Credentials& credentials) {
  const auto bio = [](const std::string& text) {
    return std::unique_ptr<BIO, decltype(&BIO_free)>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                     &BIO_free);
  };
  const std::unique_ptr<X509, decltype(&X509_free)> cert(
      PEM_read_bio_X509(bio(credentials.cert).get(), nullptr, nullptr, nullptr), &X509_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bio(credentials.key).get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), -3600);
  EXPECT_GT(X509_sign(cert.get(), key.get(), EVP_sha256()), 0);
  const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), &BIO_free);
  EXPECT_EQ(PEM_write_bio_X509(out.get(), cert.get()), 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

// The status that a TLS client gets if it trusts `ca` and shows this certificate.
grpc::StatusCode status_by_tls(const std::string& target, const std::string& ca, const Credentials& own = {}) {
  grpc::SslCredentialsOptions options{ca, own.key, own.cert};
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("strata-run");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = pb::Run::NewStub(grpc::CreateCustomChannel(target, grpc::SslCredentials(options), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  pb::Status reply;
  return stub->GetStatus(&context, pb::GetStatusRequest(), &reply).error_code();
}

TEST_F(ServiceAccessTest, RefusesMissingExpiredAndForeignClientCertificates) {
  Credentials server = make_credentials();
  server.token.clear();
  const Credentials client = make_credentials();
  server.client_ca = client.cert;
  open(server, true, true);
  Credentials late = client;
  late.cert = expired(client);
  EXPECT_EQ(status_by_tls(address_, server.cert, client), grpc::StatusCode::OK);
  EXPECT_EQ(status_by_tls(address_, server.cert), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status_by_tls(address_, server.cert, late), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status_by_tls(address_, server.cert, make_credentials()), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status_by_tls(address_, server.cert, client), grpc::StatusCode::OK);
}

TEST_F(ServiceAccessTest, TellsAClientWhichCredentialsItNeeds) {
  open({}, true, true);
  EXPECT_FAILURE((void)Client({address_, true, make_credentials().cert, "", "", ""}).status(), Exit::usage,
                 HasSubstr("it does not use TLS: leave out --ca"));
}

Descriptor connected_to(const std::string& target) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(target.substr(target.rfind(':') + 1))));
  Descriptor out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval wait{20, 0};
  setsockopt(out.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  EXPECT_EQ(connect(out.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return out;
}

// Whether the other end is closed within twenty seconds.
bool is_closed(const Descriptor& socket) {
  char bytes[256];
  ssize_t n = 0;
  while ((n = recv(socket.get(), bytes, sizeof bytes, 0)) > 0) {
  }
  return n == 0 || errno == ECONNRESET;
}

TEST_F(ServiceAccessTest, ConnectionsWithoutATokenDoNotBlockOthers) {
  const std::string token = "0123456789abcdef0123";
  open({"", "", "", token}, true, true, 4, std::chrono::hours(1));
  std::vector<Descriptor> idle;
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 4; ++i) idle.push_back(connected_to(address_));
  EXPECT_EQ(Client(target(token)).status().max_steps(), 100);
  for (int i = 0; i < 4; ++i) {
    strangers.push_back(std::make_unique<Client>(target("another")));
    EXPECT_FAILURE((void)strangers.back()->status(), Exit::usage, HasSubstr("the token is missing or wrong"));
  }
  EXPECT_EQ(Client(target(token)).status().max_steps(), 100);
  // Clients that have sent the token stay connected, so the next one has to wait.
  std::vector<std::unique_ptr<Client>> owners;
  for (int i = 0; i < 4; ++i) {
    owners.push_back(std::make_unique<Client>(target(token)));
    EXPECT_EQ(owners.back()->status().max_steps(), 100);
  }
  EXPECT_TRUE(is_closed(connected_to(address_)));
}

TEST_F(ServiceAccessTest, ConnectionsWithoutATokenAreClosedAndOthersStay) {
  const std::string token = "0123456789abcdef0123";
  open({"", "", "", token}, true, true, 128, 200ms);
  Client owner(target(token));
  std::vector<std::int64_t> steps;
  post(1);
  EXPECT_FALSE(owner.watch(1, [&](const pb::Step& step) {
    steps.push_back(step.step());
    if (steps.size() > 1) return false;
    EXPECT_TRUE(is_closed(connected_to(address_)));
    post(2);
    return true;
  }));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2}));
}

// A full service closes connections without an answer, and so does one with TLS. The client cannot distinguish the two,
// so it names both.
TEST_F(ServiceAccessTest, ExplainsThatALimitIsTemporary) {
  Listener listener = Listener::tcp({"127.0.0.1", 0}, "k");
  const std::string address = "127.0.0.1:" + std::to_string(listener.port());
  const ConnectionLimiter full(std::move(listener), 0, [](Descriptor) {});
  Target target{address, false, "", "", "", ""};
  EXPECT_FAILURE((void)Client(target).status(), Exit::usage,
                 AllOf(HasSubstr("If the run uses TLS, pass --ca CERT"), HasSubstr("retry in 10 s")));
  target.plain = true;
  EXPECT_FAILURE((void)Client(target).status(), Exit::failed,
                 address + ": connection closed: the run is ending or has too many connections; retry in 10 s");
  const ConnectionLimiter full_socket(Listener::unix_socket(path(), "k"), 0, [](Descriptor) {});
  target.address = "unix:" + path().string();
  EXPECT_FAILURE((void)Client(target).status(), Exit::failed, HasSubstr("too many connections"));
}

TEST_F(ServiceAccessTest, ClientsRefuseAnExpiredCertificate) {
  Credentials server = make_credentials();
  server.token.clear();
  server.cert = expired(server);
  open(server, true, true);
  EXPECT_EQ(status_by_tls(address_, server.cert), grpc::StatusCode::UNAVAILABLE);
}

// Clients send half a handshake, many times. Proper clients can still connect.
TEST_F(ServiceAccessTest, AnswersDespiteUnfinishedHandshakes) {
  Credentials server = make_credentials();
  server.token.clear();
  open(server, true, true);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address_.substr(address_.find(':') + 1))));
  std::vector<Descriptor> connections;
  for (int i = 0; i < 60; ++i) {
    connections.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(connections.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    // Sends nothing, or the first bytes of a hello that promises 512.
    const std::string hello("\x16\x03\x01\x02\x00\x01\x00", 7);
    if (i % 2) (void)send(connections.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(status_by_tls(address_, server.cert), grpc::StatusCode::OK);
}

}  // namespace
}  // namespace strata::launcher::control
