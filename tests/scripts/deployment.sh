#!/usr/bin/env bash
# Checks the files from which users start on clusters: the MPIJob and the batch script are valid, and the image has
# every library of the program.
#   tests/scripts/deployment.sh STRATA
set -euo pipefail
strata=$(realpath "$1")
cd "$(dirname "$0")/../../launcher"

bash -n slurm/train.sbatch
for line in '--signal=B:USR1@' '--requeue' '--no-kill' '--open-mode=append'; do
  grep -q "^#SBATCH $line" slurm/train.sbatch || { echo "train.sbatch has no #SBATCH $line" && exit 1; }
done

# The job is put back into the queue if its time is over (USR1), but not if a user has stopped the run. A program that
# ends with 75 on a signal, or by itself, replaces strata.
jobs=$(mktemp -d)
trap 'rm -rf "$jobs"' EXIT
printf '%s\n' '#!/bin/bash' 'trap "exit 75" USR1' ': >"$JOBS/begun"' '[ "$STOPPED" = no ] || exit 75' \
  'for i in $(seq 600); do sleep 0.1; done' >"$jobs/strata"
printf '%s\n' '#!/bin/bash' 'echo "$*" >>"$JOBS/requeued"' >"$jobs/scontrol"
chmod +x "$jobs/strata" "$jobs/scontrol"
job() { # STOPPED [SIGNAL]: what becomes of a job whose run is stopped, or that gets a signal
  rm -f "$jobs/begun" "$jobs/requeued"
  JOBS=$jobs STOPPED=$1 PATH=$jobs:$PATH STRATA_PROGRAM=$jobs/strata SLURM_JOB_NAME=x SLURM_JOB_ID=7 \
    bash slurm/train.sbatch r.toml >/dev/null &
  local script=$!
  for ((i = 0; i < 300; ++i)); do [ ! -e "$jobs/begun" ] || break; sleep 0.1; done
  [ -z "${2:-}" ] || kill "-$2" "$script"
  status=0
  wait "$script" || status=$?
}
job no USR1
[ "$status" = 0 ] && [ "$(cat "$jobs/requeued")" = "requeue 7" ] || { echo "USR1: no requeue, status $status" && exit 1; }
job yes
[ "$status" = 75 ] && [ ! -e "$jobs/requeued" ] || { echo "stopped: a requeue, status $status" && exit 1; }
job no TERM
[ "$status" = 75 ] && [ ! -e "$jobs/requeued" ] || { echo "TERM: a requeue, status $status" && exit 1; }

# The program is the one on the PATH, otherwise the one built in the folder. If there is none, the script says so.
chosen() { # PATH FOLDER: what the script says, or which program it starts
  (cd "$2" && env -u STRATA_PROGRAM JOBS="$jobs" STOPPED=yes PATH="$1" SLURM_JOB_NAME=x SLURM_JOB_ID=7 \
    bash -x "$OLDPWD/slurm/train.sbatch" r.toml 2>&1 | grep -E ' launch --logs|there is no' || true)
}
mkdir -p "$jobs/built/build" "$jobs/empty" && cp "$jobs/strata" "$jobs/built/build/strata"
chosen "$jobs:/usr/bin:/bin" "$jobs/built" | grep -q "$jobs/strata launch" || { echo "not the one on the PATH" && exit 1; }
chosen /usr/bin:/bin "$jobs/built" | grep -q "$jobs/built/build/strata launch" || { echo "not the built one" && exit 1; }
chosen /usr/bin:/bin "$jobs/empty" | grep -q "set STRATA_PROGRAM" || { echo "no sentence without a program" && exit 1; }
(export STRATA_LAUNCH_OPTIONS="--min-nodes 3" && chosen "$jobs:/usr/bin:/bin" "$jobs/empty") |
  grep -q "logs --min-nodes 3 -- train" || { echo "no options of launch" && exit 1; }

python3 -c 'import yaml' 2>/dev/null || { echo "Skipped: python3-yaml is not installed (scripts/setup.sh --cluster)" && exit 77; }
python3 - <<'END'
import yaml

job = yaml.safe_load(open("kubernetes/mpijob.yaml"))
assert job["apiVersion"] == "kubeflow.org/v2beta1" and job["kind"] == "MPIJob", job
# These are the fields of the operator's v2beta1, so that a misspelt one is detected.
allowed = {
    "spec": {"slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs", "sshAuthMountPath",
             "launcherCreationPolicy", "mpiImplementation"},
    "runPolicy": {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
                  "schedulingPolicy", "suspend", "managedBy"},
    "replica": {"replicas", "template", "restartPolicy"},
}
spec = job["spec"]
assert set(spec) <= allowed["spec"], set(spec) - allowed["spec"]
assert set(spec["runPolicy"]) <= allowed["runPolicy"], spec["runPolicy"]
assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}
for name, replica in spec["mpiReplicaSpecs"].items():
    assert set(replica) <= allowed["replica"], replica
    pod = replica["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, container
launcher = spec["mpiReplicaSpecs"]["Launcher"]
assert launcher["replicas"] == 1 and launcher["restartPolicy"] in ("Never", "OnFailure")
assert launcher["template"]["spec"]["containers"][0]["command"] == ["strata"]
END

command -v dpkg-query >/dev/null || { echo "Skipped: this is not Debian" && exit 77; }
libraries=$(ldd "$strata")
for name in $(readelf -d "$strata" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  place=$(echo "$libraries" | awk -v name="$name" '$1 == name && $3 ~ /^\// {print $3}')
  [ -n "$place" ] || continue # not here, as a GPU's on a machine without one; or none of a package
  file=$(readlink -f "$place")
  package=$(dpkg-query -S "$file" 2>/dev/null || dpkg-query -S "${file#/usr}" 2>/dev/null) || continue # none of Debian's
  package=${package%%:*}
  case $package in libc6 | libgcc-s1 | libstdc++6) continue ;; esac # every program's
  grep -qw -- "$package" container/Containerfile || { echo "Containerfile: $package is missing, for $name" && exit 1; }
done
