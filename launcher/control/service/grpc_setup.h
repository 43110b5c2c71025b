#pragma once
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <cstddef>

#include "base/files/descriptor.h"

namespace strata::launcher::control {

// Call this before creating a server or a channel. Turns off gRPC's internal logging, with which a client that does not
// use TLS could fill the run's log; GRPC_VERBOSITY in the environment turns it on again. Throws Error{failed} if the
// system would refuse the threads or descriptors that gRPC needs, because gRPC itself would abort or wait forever.
void prepare_grpc();

// The maximum size of a request from users and tools. Their requests contain only a few flags.
constexpr std::size_t kMaxRequestBytes = 64 << 10;

// The status message of calls that are open when the run ends.
inline constexpr const char* kHasEnded = "the run has ended";

// The bounds of every server of the control plane: threads, memory, message sizes, and idle connections.
inline void limit(grpc::ServerBuilder& builder, std::size_t max_bytes, int handshake_ms = 10'000,
                  int idle_ms = 300'000) {
  prepare_grpc();
  // gRPC's reflection service is synchronous. It gets exactly two threads.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  grpc::ResourceQuota quota("strata");
  quota.Resize(std::size_t{48} << 20).SetMaxThreads(8);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(max_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 64);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, handshake_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, idle_ms);
  // Requests are short, so a connection needs little memory for reading and for the buffer that TLS fills.
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 2 << 10);
  builder.AddChannelArgument(GRPC_ARG_TSI_MAX_FRAME_SIZE, 2 << 10);
  // Messages are small, so gRPC need not measure the link with a ping after each.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // A lost host never closes its connection, so each peer is pinged every minute and has 20 s to answer.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  // A peer may also ping this end while one of its own calls waits.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

// Connections are accepted here and not by gRPC, so that their number is bounded. From now on gRPC owns the connection.
inline void hand_over(grpc::experimental::ExternalConnectionAcceptor& acceptor, Descriptor connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection.release();
  acceptor.HandleNewConnection(&parameters);
}

}  // namespace strata::launcher::control
