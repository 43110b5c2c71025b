#!/usr/bin/env bash
# Tests a foreign client, Python's grpcio, which learns about the control service of a live run only by reflection, over
# the Unix socket and over TLS with a token. Without the token, or without the certificate's authority, it learns
# nothing about the run.
#   grpc_client.sh STRATA FOLDER     STRATA_PYTHON: a Python with grpcio-reflection and grpcio-health-checking
#                                    (scripts/setup.sh --dev makes .dev)
set -euo pipefail
strata=$1 folder=$2 python=${STRATA_PYTHON:-$(dirname "$0")/../../.dev/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
"$python" -c "import grpc, grpc_reflection, grpc_health" 2>/dev/null ||
  { echo "Skipped: $python has no grpcio-reflection (scripts/setup.sh --dev, or STRATA_PYTHON)"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder"
head -c 4096 /dev/zero | tr '\0' '\1' >"$folder/tokens.bin" # of two bytes each: 257
run=
trap '[ -z "$run" ] || kill -9 $run 2>/dev/null || true' EXIT

# train KEYS...: the run is in $run, once it trains.
train() {
  rm -rf "$folder/checkpoints" "$folder/log"
  set -- "${@/#/--set=}"
  "$strata" train --set model.preset=tiny-gpt2 --set model.config.n_layer=1 --set model.config.vocab_size=300 \
    --set data.train="$folder/tokens.bin" --set data.seq_len=16 --set training.max_steps=1000000 \
    --set checkpoint.dir="$folder/checkpoints" --set device.threads=1 "$@" 2>"$folder/log" &
  run=$!
  until grep -q '^step ' "$folder/log"; do kill -0 $run 2>/dev/null || { cat "$folder/log"; exit 1; }; sleep 0.1; done
}
# client TARGET [CA TOKEN]: asks, and ends the run.
client() {
  GRPC_VERBOSITY=NONE "$python" - "$@" <<'END' || { tail -n 3 "$folder/log"; exit 1; }
import sys

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

target, NAME = sys.argv[1], "strata.control.v1.Run"


def channel(ca, token):
    if not ca:
        return grpc.insecure_channel(target)
    credentials = grpc.ssl_channel_credentials(ca)
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    return grpc.secure_channel(target, credentials)


def service(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {NAME, "grpc.health.v1.Health"} <= set(database.get_services()), database.get_services()
    return DescriptorPool(database).FindServiceByName(NAME)


def call(method, channel=None):
    takes, gives = (message_factory.GetMessageClass(type) for type in (method.input_type, method.output_type))
    channel = channel or reached
    kind = channel.unary_stream if method.server_streaming else channel.unary_unary
    return kind(f"/{NAME}/{method.name}", takes.SerializeToString, gives.FromString)(takes(), timeout=60)


def refused(ca, token, code):
    try:
        client = channel(ca, token)
        call(service(client).methods_by_name["GetStatus"], client)
    except grpc.RpcError as error:
        assert error.code() == code, error
        return
    assert False, f"it answers anybody: {code} was expected"


ca = token = None
if len(sys.argv) > 2:
    ca, token = open(sys.argv[2], "rb").read(), open(sys.argv[3]).read().strip()
    refused(ca, None, grpc.StatusCode.UNAUTHENTICATED)
    refused(ca, token[:-1] + "x", grpc.StatusCode.UNAUTHENTICATED)
    refused(open(sys.argv[4], "rb").read(), token, grpc.StatusCode.UNAVAILABLE)
reached = channel(ca, token)
methods = service(reached).methods_by_name
health = health_pb2_grpc.HealthStub(reached)
for name in ("", NAME):
    answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer
status = call(methods["GetStatus"])
assert status.step > 0 and status.last.seconds > 0 and status.run.family == "gpt2" and status.run.device == "cpu", status
watched = call(methods["WatchSteps"])
steps = [next(watched).step for _ in range(3)]
watched.cancel()
assert status.step <= steps[0] < steps[1] < steps[2], steps
assert "training.max_steps = 1000000" in call(methods["GetPlan"]).recipe
saved = call(methods["Checkpoint"])
assert saved.step > steps[2] and saved.path.startswith("/"), saved
assert call(methods["Stop"]).checkpoint
END
  wait $run && code=0 || code=$?
  run=
  [ $code = 75 ] || { cat "$folder/log"; echo "the run ended with exit code $code"; exit 1; }
}

# A socket's path has at most 107 characters.
sockets=$(mktemp -d)
trap '[ -z "$run" ] || kill -9 $run 2>/dev/null || true; rm -rf "$sockets"' EXIT
train control.listen=unix:"$sockets/run"
client unix:"$sockets/run"

openssl rand -hex 32 >"$folder/token" && chmod 600 "$folder/token"
for name in own other; do
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$folder/$name.key" -out "$folder/$name.pem" 2>"$folder/openssl.log"
done
train control.listen=127.0.0.1:0 control.tls_cert="$folder/own.pem" control.tls_key="$folder/own.key" \
  control.token_file="$folder/token"
port=$(sed -n 's/^strata: control .*:\([0-9]*\) (TLS)$/\1/p' "$folder/log")
client localhost:"$port" "$folder/own.pem" "$folder/token" "$folder/other.pem"
