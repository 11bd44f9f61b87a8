# measure.sh PROGRAM OUTSTANDING WARM_UP WINDOW OPTION... URI
# Has pjsip-perf call for warm-up and window, which it does not tell apart, and prints its figures as a line of JSON.
program=$1 outstanding=$2 time=$(echo "$3 $4" | awk '{ print int($1 + $2 + 0.5) }')
shift 4
[ "$time" -gt 0 ] || time=1
"$program" --local-port=0 --count=100000000 --window="$outstanding" --timeout="$time" "$@" | tr '\r' '\n' | awk '
/^Total .* sent in/ { sent = $2 }
/TOTAL responses:/ { got = $3; rate = $4; gsub(/[^0-9]/, "", rate) }
{ print }
END {
    if (rate == "") exit 1
    # What is under way at the end is no failure.
    printf "{\"attempts\": %d, \"rate.achieved\": %d}\n", sent, rate
}'
