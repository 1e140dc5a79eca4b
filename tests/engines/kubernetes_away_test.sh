# kubernetes_away_test.sh - for five minutes no API server answers, while a map, a ring, and a ring that adds up by MPI are at
# work: promise R9. Map and MPI come to their ends meanwhile, which are seen afterwards.
#
# The masters reach the server through a relay, which is killed for that time: nobody listens for them, and other tests have
# their server. A server that itself dies and comes back is in kubernetes_test.sh.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash source=tests/engines/kubernetes.sh disable=SC2016
away_s=${KUBERNETES_AWAY_S:-300} # for so many seconds nobody answers
space="fiber-away"
relay='' door=127.0.0.9
declare -A left
clean() {
    [[ ${#left[@]} == 0 ]] || kill "${left[@]##* }" 2>/dev/null || :
    end_relay
    "$bed" kubectl delete namespace $space --ignore-not-found --wait=false >/dev/null 2>&1 || :
}
# A process group of its own: it has a process for each connection.
begin_relay() {
    setsid socat "TCP-LISTEN:6443,bind=$door,reuseaddr,fork" "TCP:$server" >"$work/relay" 2>&1 &
    relay=$!
    wait_for "the relay should listen" listens
}
listens() { (exec 3<>"/dev/tcp/$door/6443") 2>/dev/null; }
end_relay() {
    [[ $relay ]] || return 0
    kill -KILL -- "-$relay" 2>/dev/null || : # it may have ended by itself
    wait "$relay" 2>/dev/null || :
    relay=
}
command -v socat >/dev/null || { echo "needs socat"; exit 77; }
. "$(dirname "$0")/kubernetes.sh"
export FIBER_KUBERNETES_NAMESPACE=$space
"$bed" kubectl delete namespace $space --ignore-not-found >/dev/null # of a run before, which may be going yet
"$bed" kubectl create namespace $space >/dev/null
manifest $space | "$bed" kubectl apply -f - >/dev/null
wait_for "its Role should hold" may_begin
image_of_mpi

server=$(sed -nE 's,.*server: "https://([^"]*)".*,\1,p' "$KUBECONFIG")
sed "s,\"https://$server\",\"https://$door:6443\"\, tls-server-name: localhost," "$KUBECONFIG" >"$work/kubeconfig"
export KUBECONFIG=$work/kubeconfig
begin_relay

# leave NAME: it goes on; take NAME: it is the one again that is spoken of
leave() {
    left[$1]="$out $launcher"
    launcher=
    cp "$work/out" "$work/said-$1"
}
take() {
    read -r out launcher <<<"${left[$1]}"
    unset "left[$1]"
    cp "$work/said-$1" "$work/out"
}

maps
leave map
steps='i=0; while :; do echo "rank $FIBER_RANK step $i"; i=$((i + 1)); sleep 1; done'
begins 2 'step 1' "$fiber" run -n 2 -N 1 sh -c "$steps"
leave ring
if [[ $mpi ]]; then
    mkfifo "$work/in"
    exec {in}<>"$work/in"
    begins 1 'step 0' env FIBER_IMAGE=fiber-mpi:1 sh -c '"$@" <"$0"; echo "exit code $?"' "$work/in" \
        "$fiber" run -n 2 -N 1 "$mpi"
    leave mpi
fi
end_relay
! listens || failed "somebody listens at $door"
read -rt "$away_s" <> <(:) || :
take map
touch "$work/go"
more 1 'right 200 of 200'
leave map
if [[ $mpi ]]; then
    take mpi
    echo end >&"$in"
    more 2 'all sums were right'
    leave mpi
fi
begin_relay
take ring
last="step $((away_s / 2))" # it was written while the server was away
while IFS= read -r -t 300 line <&"$out" && echo "$line" >>"$work/out" && [[ $line != *"$last" ]]; do :; done
kill -TERM "$launcher"
ends
says 'was stopped'
for rank in 0 1; do
    awk -v rank=$rank '$1 == "rank" && $2 == rank { if ($4 != n++) bad = 1 } END { exit bad || !n }' "$work/out" ||
        failed "lines of rank $rank are missing or come twice"
done
says "$last"
! grep -qE 'is gone|lost|exited with' "$work/out" || failed "no rank should have ended"
take map
finish
if [[ $mpi ]]; then
    take mpi
    ends
    says '^exit code 0$'
    says '^rank 1 of 2: all sums were right$'
    exec {in}>&-
fi
nothing_left
ok "no API server for $away_s s"
[[ $mpi ]] || echo "skip: MPI (needs mpicc.openmpi and the PMIx module)"
