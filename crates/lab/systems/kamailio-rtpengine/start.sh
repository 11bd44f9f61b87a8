# start.sh PORT COMMAND...
# Starts rtpengine, waits until it listens for Kamailio, and becomes the command. Both end together: they are one process group.
port=$1
shift
command -v rtpengine > /dev/null || { echo 'rtpengine is missing: apt-get install rtpengine-daemon'; exit 1; }
# A call has eight sockets.
ulimit -n "$(ulimit -Hn)"
rtpengine --config-file=none --foreground --log-stderr --log-level=4 --table=-1 --interface=127.0.0.2 --listen-ng="127.0.0.3:$port" --listen-cli="127.0.0.3:$port" \
    --port-min=16384 --port-max=32767 --delete-delay=0 &
# The kernel writes address and port in hexadecimal digits.
own=$(printf '0300007F:%04X' "$port")
tries=0
until grep -q "$own" /proc/net/udp; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] && kill -0 $! 2> /dev/null || { echo 'rtpengine does not listen'; exit 1; }
    sleep 0.05
done
exec "$@"
