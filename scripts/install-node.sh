#!/bin/sh
# Install Brain Node on this machine: check it, make an environment of its own, join, run as a service. Or take it away again.
#
#   install-node.sh URL [--token-file FILE] [--model ID]... [options] [-- what else `brain-node join` takes]
#   install-node.sh uninstall [--purge] [options]
#
#   --token-file FILE  join token of the coordinator's operator; a copy is kept that only this node can read
#   --model ID         model to serve; repeat for more (default: auto)
#   --prefix DIR       where to install (default: /opt/brain-node as root, else ~/.local/share/brain-node-app)
#   --source WHAT      what pip installs (default: this checkout when there is one, else brain-node)
#   --no-engine        do not install vLLM (for --engine attach or mock)
#   --no-service       do not install a systemd service
#   --dry-run          say what would be done
#   --purge            with uninstall: also the identity, settings and engines of this node
#
# As root it installs for the machine and starts at boot; otherwise for this user. Nothing is downloaded but packages.
set -eu

say() { printf '%s\n' "$*"; }
fail() {
    printf 'error [%s]: %s\n  next: %s\n' "$1" "$2" "$3" >&2
    exit "${4:-78}"
}
run() {
    if [ "$dry_run" = yes ]; then say "would run: $*"; else "$@"; fi
}

here=$(cd "$(dirname "$0")" && pwd)
root=no
[ "$(id -u)" = 0 ] && root=yes
action=install url='' token_file='' models='' prefix='' source='' engine=yes service=yes dry_run=no purge=no

value() { [ $# -ge 2 ] || fail usage "$1 needs a value" "see the head of this script" 2; }
while [ $# -gt 0 ]; do
    case $1 in
    uninstall) action=uninstall ;;
    --token-file) value "$@"; token_file=$2; shift ;;
    --model) value "$@"; models="$models --model $2"; shift ;;
    --prefix) value "$@"; prefix=$2; shift ;;
    --source) value "$@"; source=$2; shift ;;
    --no-engine) engine=no ;;
    --no-service) service=no ;;
    --dry-run) dry_run=yes ;;
    --purge) purge=yes ;;
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --) shift; break ;;
    -*) fail usage "there is no option $1" "see $0 --help" 2 ;;
    *) [ -z "$url" ] || fail usage "two coordinators are named: $url and $1" "name one" 2; url=$1 ;;
    esac
    shift
done
# What is left in "$@" goes to `brain-node join`.

if [ "$root" = yes ]; then
    prefix=${prefix:-/opt/brain-node} link=/usr/local/bin/brain-node kept=/etc/brain-node data=/var/lib/brain-node scope=--system
else
    prefix=${prefix:-$HOME/.local/share/brain-node-app} link=$HOME/.local/bin/brain-node scope=''
    kept=${XDG_CONFIG_HOME:-$HOME/.config}/brain-node data=${XDG_DATA_HOME:-$HOME/.local/share}/brain-node
fi
node=$prefix/bin/brain-node
dropin=/etc/systemd/system/brain-node.service.d

if [ "$action" = uninstall ]; then
    [ -e "$prefix/.brain-node" ] || fail not_installed "nothing was installed in $prefix" "name the folder with --prefix" 69
    run "$node" service uninstall $scope || say "no service to remove"
    [ "$root" = yes ] && run rm -rf "$dropin"
    [ "$(readlink "$link" 2>/dev/null)" = "$node" ] && run rm -f "$link"
    run rm -rf "$prefix"
    if [ "$purge" = yes ]; then
        # The service's own user has its files under private/, and mere links to them in the usual places.
        [ "$root" = yes ] && run rm -rf /var/lib/private/brain-node /var/cache/private/brain-node /var/cache/brain-node
        run rm -rf "$kept" "$data"
    fi
    [ "$dry_run" = yes ] && exit 0
    if [ "$purge" = yes ]; then
        say "removed, with the identity, settings and engines of this node"
    else
        say "removed; identity and settings stay in $data and $kept (--purge removes them too)"
    fi
    exit 0
fi

# --- checks, before anything is changed ---------------------------------------------------------------------------------

[ -n "$url" ] || fail no_url "no coordinator is named" "$0 https://coordinator.example --token-file token" 2
[ "$(uname -s)" = Linux ] || fail not_linux "Brain Node runs on Linux" "on Windows use WSL 2"
if [ -e "$prefix" ] && [ ! -e "$prefix/.brain-node" ] && [ -n "$(ls -A "$prefix" 2>/dev/null)" ]; then
    fail prefix_in_use "$prefix holds something else" "name an empty folder with --prefix"
fi
if [ -n "$token_file" ] && [ ! -r "$token_file" ]; then
    fail no_token "the token file $token_file cannot be read" "get a token from the coordinator's operator" 77
fi

python=''
for each in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
    if command -v "$each" >/dev/null 2>&1 && "$each" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$(command -v "$each")
        break
    fi
done
[ -n "$python" ] || fail no_python "Python 3.11 or newer with venv is needed" "on Debian and Ubuntu: apt-get install python3-venv"
say "python       $python"

if command -v nvidia-smi >/dev/null 2>&1 && cards=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) && [ -n "$cards" ]; then
    say "cards        $(printf '%s' "$cards" | tr '\n' ',' | sed 's/,/, /g')"
else
    say "cards        none that the NVIDIA driver shows; small models can run on the CPU"
fi

if [ "$engine" = yes ]; then
    parent=$prefix
    while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
    free_kib=$(df -Pk "$parent" | awk 'NR == 2 {print $4}')
    [ "$free_kib" -ge 15000000 ] || fail disk_full "the engine needs 15 GB beside the models, $parent has $((free_kib / 1000000)) GB free" "free some, or choose another --prefix" 69
    say "disk         $((free_kib / 1000000)) GB free"
fi

"$python" - "$url" <<'PY' || fail unreachable "no coordinator answers at $url" "check the address, the network and the proxy" 69
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1].rstrip("/") + "/healthz", timeout=15) as reply:
    sys.exit(reply.status != 200)
PY
say "coordinator  $url answers"

if [ "$service" = yes ] && ! command -v systemctl >/dev/null 2>&1; then
    say "service      none: this machine has no systemd"
    service=no
fi

# --- install ------------------------------------------------------------------------------------------------------------

if [ -z "$source" ]; then
    if [ -f "$here/../pyproject.toml" ]; then source=$(cd "$here/.." && pwd); else source=brain-node; fi
fi
run mkdir -p "$prefix"
run touch "$prefix/.brain-node"
[ -x "$prefix/bin/python" ] || run "$python" -m venv "$prefix"
say "installing   $source into $prefix"
if [ -f "$here/../requirements.lock" ]; then
    run "$prefix/bin/pip" install -q --disable-pip-version-check -c "$here/../requirements.lock" "${source}[hub]"
else
    run "$prefix/bin/pip" install -q --disable-pip-version-check "${source}[hub]"
fi
run mkdir -p "$(dirname "$link")"
run ln -sfn "$node" "$link"

if [ "$engine" = yes ]; then
    if [ "$root" = yes ]; then run env BRAIN_NODE_ENGINES_DIR="$prefix/engines" "$node" engine install; else run "$node" engine install; fi
fi

token=''
if [ -n "$token_file" ]; then
    token="--token-file $kept/token"
    if [ "$dry_run" = yes ]; then
        say "would keep a copy of the token in $kept/token"
    else
        (umask 077 && mkdir -p "$kept" && cat "$token_file" >"$kept/token.new" && mv "$kept/token.new" "$kept/token")
    fi
fi

if [ "$service" = yes ]; then
    if [ "$root" = yes ] && [ "$engine" = yes ]; then
        # The service's user cannot write here, and need not: it only starts what lies in it.
        run mkdir -p "$dropin"
        [ "$dry_run" = yes ] || printf '[Service]\nEnvironment=BRAIN_NODE_ENGINES_DIR=%s/engines\n' "$prefix" >"$dropin/engines.conf"
    fi
    # Words without blanks: an address, model ids and a path of ours.
    # shellcheck disable=SC2086
    run "$node" service install $scope "$url" $token ${models:- --model auto} "$@"
    [ "$dry_run" = yes ] && exit 0
    say "waiting for the coordinator's welcome (the node goes on by itself if this takes longer)"
    waited=0
    while [ $waited -lt 60 ]; do
        if "$node" status --json --data-dir "$data" 2>/dev/null | grep -q '"state": *"online"'; then
            say "joined       see it on $url/network, or: brain-node status"
            exit 0
        fi
        sleep 2
        waited=$((waited + 2))
    done
    say "not joined yet; see why with: brain-node doctor"
else
    say "installed. Join with:"
    # shellcheck disable=SC2086
    say "  $node join $url $token${models:- --model auto} $*"
fi
