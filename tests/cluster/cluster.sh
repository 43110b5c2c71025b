#!/usr/bin/env bash
# A cluster of several nodes on one machine, for tests: each node is a network namespace with its own address, host name
# and /dev/shm, an sshd, and (with --slurm) a slurmd; slurmctld runs on the first. Nodes share the file system, the
# processors, the memory and the kernel. As root; Debian: iproute2 openssh-server slurm-wlm munge.
#   cluster.sh up N [--slurm] [--slots S]      makes nodes n1..nN (10.77.0.1 ..), S ranks each in the hostfile (2)
#   cluster.sh exec NODE COMMAND...            runs a command in that node, with this shell's environment
#   cluster.sh kill NODE                       the node loses power: its link and then all its processes, at once
#   cluster.sh cut NODE | join NODE            takes its link down, or up again
#   cluster.sh revive NODE                     restores the link and the sshd (and slurmd) of a killed node
#   cluster.sh down                            removes everything
# STRATA_CLUSTER: the cluster's folder, which identifies it, as several may be up at once (/run/strata-cluster).
set -euo pipefail
dir=${STRATA_CLUSTER:-/run/strata-cluster}
net=10.77.0

# Names of namespaces and links are shared by the machine, so they begin with the cluster's number, the first free one.
number() { cat "$dir/number"; }
namespace() { echo "strata$(number)-$1"; }
link() { echo "s$(number)-$1"; }

# Replaces this process by the command, so that signals reach the command.
become_in_node() {
  exec nsenter --net="/run/netns/$(namespace "$1")" --uts="$dir/$1/uts" --mount="$dir/$1/mnt" -- env -C "$PWD" "${@:2}"
}
in_node() { (become_in_node "$@"); }

up() {
  local n=$1 slurm= slots=2 own=0
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --slurm) slurm=1 ;;
      --slots) slots=$2 && shift ;;
      *) exit 2 ;;
    esac
    shift
  done
  [ ! -e "$dir" ] || {
    echo "there is a cluster already: $0 down" >&2
    exit 1
  }
  mkdir -p "$dir" && chmod 755 "$dir"
  # Namespaces are kept alive as bind mounts, which a mount namespace must not propagate.
  mount -t tmpfs tmpfs "$dir" && mount --make-private "$dir"
  until ip link add "s$own-bridge" type bridge 2>/dev/null; do
    own=$((own + 1))
    [ "$own" -lt 100 ] || { echo "no bridge can be made (are you root?)" >&2 && exit 1; }
  done
  echo "$own" >"$dir/number"
  echo "$n" >"$dir/nodes"
  ip link set "$(link bridge)" up
  ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
  printf '127.0.0.1 localhost\n' >"$dir/hosts"
  for i in $(seq "$n"); do echo "$net.$i n$i"; done >>"$dir/hosts"
  for i in $(seq "$n"); do echo "n$i slots=$slots"; done >"$dir/hostfile"
  printf 'Host n*\n  IdentityFile %s\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n' \
    "$dir/key" >"$dir/ssh_config"
  mkdir -p /run/sshd
  for i in $(seq "$n"); do make_node "n$i" "$net.$i"; done
  for i in $(seq "$n"); do start_sshd "n$i"; done
  [ -z "$slurm" ] || slurm_up "$n"
}

make_node() {
  local node=$1 address=$2 namespace link
  namespace=$(namespace "$node")
  link=$(link "$node")
  mkdir -p "$dir/$node" && touch "$dir/$node/uts" "$dir/$node/mnt"
  ip netns add "$namespace"
  ip link add "$link" type veth peer name eth0 netns "$namespace"
  ip link set "$link" master "$(link bridge)" up
  ip -n "$namespace" addr add "$address/24" dev eth0
  ip -n "$namespace" link set eth0 up && ip -n "$namespace" link set lo up
  unshare --uts="$dir/$node/uts" --mount="$dir/$node/mnt" --propagation private sh -ec "
    hostname $node
    mount -t tmpfs tmpfs /dev/shm
    mount --bind '$dir/hosts' /etc/hosts
    mount --bind '$dir/ssh_config' /etc/ssh/ssh_config"
  cat >"$dir/$node/sshd" <<END
ListenAddress $address
HostKey $dir/key
AuthorizedKeysFile $dir/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile $dir/$node/sshd.pid
MaxStartups 100
END
}
start_sshd() { in_node "$1" /usr/sbin/sshd -f "$dir/$1/sshd" -E "$dir/$1/sshd.log"; }

slurm_up() {
  local n=$1
  mkdir -p "$dir/slurm"/{state,log} && chmod 700 "$dir/slurm"
  dd if=/dev/urandom bs=1024 count=1 of="$dir/slurm/munge.key" status=none && chmod 600 "$dir/slurm/munge.key"
  cat >"$dir/slurm/slurm.conf" <<END
ClusterName=strata
SlurmctldHost=n1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock,cred_expire=5
CredType=cred/munge
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
StateSaveLocation=$dir/slurm/state
SlurmdSpoolDir=$dir/%n/spool
SlurmctldPidFile=$dir/slurm/ctld.pid
SlurmdPidFile=$dir/%n/slurmd.pid
SlurmctldLogFile=$dir/slurm/log/ctld.log
SlurmdLogFile=$dir/slurm/log/%n.log
ReturnToService=2
JobRequeue=1
KillWait=25
SlurmdTimeout=10
OverTimeLimit=0
SchedulerParameters=sched_interval=2,bf_interval=2
TmpFS=$dir/%n/tmp
NodeName=n[1-$n] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  munged --socket="$dir/munge.sock" --key-file="$dir/slurm/munge.key" --pid-file="$dir/slurm/munged.pid" \
    --log-file="$dir/slurm/log/munged.log" --seed-file="$dir/slurm/munged.seed" --force 2>/dev/null
  for i in $(seq "$n"); do
    mkdir -p "$dir/n$i/spool" "$dir/n$i/tmp"
    in_node "n$i" sh -ec "mkdir -p /etc/slurm; mount -t tmpfs tmpfs /etc/slurm; cp $dir/slurm/slurm.conf /etc/slurm/"
  done
  in_node n1 slurmctld
  for i in $(seq "$n"); do in_node "n$i" slurmd -N "n$i"; done
}

processes() { ip netns pids "$(namespace "$1")" 2>/dev/null || true; }

# Kills a node's processes until there are none: some have just been started, others take a moment to end.
end_processes() {
  local all
  for _ in $(seq 250); do
    all=$(processes "$1")
    [ -n "$all" ] || break
    xargs kill -9 <<<"$all" 2>/dev/null || true
    sleep 0.02
  done
}

down() {
  [ -e "$dir" ] || exit 0
  for i in $(seq "$(cat "$dir/nodes" 2>/dev/null || echo 0)"); do
    end_processes "n$i"
    ip link del "$(link "n$i")" 2>/dev/null || true
    ip netns del "$(namespace "n$i")" 2>/dev/null || true
    rm -rf "${TMPDIR:-/tmp}/ompi.n$i.$(id -u)"  # what Open MPI leaves there if it is killed
  done
  [ ! -f "$dir/slurm/munged.pid" ] || kill "$(cat "$dir/slurm/munged.pid")" 2>/dev/null || true
  ip link del "$(link bridge)" 2>/dev/null || true
  umount "$dir"/n*/uts "$dir"/n*/mnt 2>/dev/null || true
  umount -l "$dir" && rmdir "$dir"
}

case ${1:-} in
  up) up "${@:2}" ;;
  down) down ;;
  exec) become_in_node "$2" "${@:3}" ;;
  kill) # the link first, so that no process says good-bye
    ip -n "$(namespace "$2")" link set eth0 down
    end_processes "$2"
    ;;
  revive)
    ip -n "$(namespace "$2")" link set eth0 up
    start_sshd "$2"
    [ ! -d "$dir/slurm" ] || in_node "$2" slurmd -N "$2"
    ;;
  cut) ip -n "$(namespace "$2")" link set eth0 down ;;
  join) ip -n "$(namespace "$2")" link set eth0 up ;;
  *)
    sed -n '2,12s/^# //p' "$0"
    exit 2
    ;;
esac
