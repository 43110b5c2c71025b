#pragma once
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <cstddef>

#include "base/files/descriptor.h"

namespace strata::launcher::control {

// Before a server or a channel is made. Turns off what gRPC logs, which is of its own insides (a client that does not
// know TLS would fill the run's log with it): GRPC_VERBOSITY in the environment brings it back. Throws Error{failed} if
// the system would refuse the threads or the descriptors that gRPC takes, at which it aborts, or waits for ever.
void prepare_grpc();

// A request for people and tools holds a few flags.
constexpr std::size_t kMostRequestBytes = 64 << 10;

// How calls that stay open end with a run, in its own words.
inline constexpr const char* kHasEnded = "the run has ended";

// What bounds every server of this plane: threads, memory, sizes, and connections on which nothing comes.
inline void limit(grpc::ServerBuilder& builder, std::size_t most_bytes, int handshake_ms = 10'000,
                  int idle_ms = 300'000) {
  prepare_grpc();
  // gRPC's reflection service is a synchronous one: two threads for it, and no more.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  grpc::ResourceQuota quota("strata");
  quota.Resize(std::size_t{48} << 20).SetMaxThreads(8);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(most_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 64);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, handshake_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, idle_ms);
  // Requests are short: memory for a connection, too.
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 2 << 10);
  // So are messages: the buffer of a connection that TLS fills.
  builder.AddChannelArgument(GRPC_ARG_TSI_MAX_FRAME_SIZE, 2 << 10);
  // Messages are small: gRPC need not measure the link by a ping after each.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // A peer whose host is gone says nothing: asked every minute, it has 20 s to answer.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  // It may ask us as well, while a call of its own waits.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

// Connections are accepted by ourselves, so that their number is bounded: from here on it is gRPC's.
inline void hand_over(grpc::experimental::ExternalConnectionAcceptor& acceptor, Descriptor connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection.release();
  acceptor.HandleNewConnection(&parameters);
}

}  // namespace strata::launcher::control
