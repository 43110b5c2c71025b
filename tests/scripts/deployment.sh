#!/usr/bin/env bash
# The files that users start from on clusters are what they should be: the MPIJob is one, the batch script is a script,
# the image has every library of the program.
#   tests/scripts/deployment.sh STRATA
set -euo pipefail
strata=$(realpath "$1")
cd "$(dirname "$0")/../../launcher"

bash -n slurm/train.sbatch
for line in '--signal=B:USR1@' '--requeue' '--no-kill' '--open-mode=append'; do
  grep -q "^#SBATCH $line" slurm/train.sbatch || { echo "train.sbatch has no #SBATCH $line" && exit 1; }
done

python3 -c 'import yaml' 2>/dev/null || { echo "Skipped: python3-yaml is not installed (scripts/setup.sh --cluster)" && exit 77; }
python3 - <<'END'
import yaml

job = yaml.safe_load(open("kubernetes/mpijob.yaml"))
assert job["apiVersion"] == "kubeflow.org/v2beta1" and job["kind"] == "MPIJob", job
# The fields of the operator's v2beta1, so that a misspelt one is found.
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
