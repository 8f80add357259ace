# A context for shell handlers: reads requests from descriptor 3, and writes a reply to each to descriptor 4.
#
#     sh shell_context.sh [INTERPRETER …]
#
# Without an interpreter a body is sourced in a subshell for each job; with one, it is run as a new process for
# each job. A request is a line: VERB NUMBER NAME BYTES REST, then BYTES bytes. A reply is a line: NUMBER STATUS
# BYTES CODE_BYTES, then the bytes that the job wrote to its own descriptors 3, the result, and 4, the exit code.
#
#     put     keep the bytes as the file NAME
#     source  run the script NAME in this shell, or with the interpreter
#     run     run the script NAME for a job: the bytes are its standard input, REST is "ID ATTEMPT TASK"

# What scripts do to this shell must not break it: `cd` and `set --` do not, and `set -e` holds only in jobs.
# They are sourced outside of a function, where bash would make what they declare local to it.
holdfast_dir=$PWD/.holdfast
holdfast_words=$#
holdfast_errexit=
mkdir -p "$holdfast_dir"

holdfast_reply() {
    if [ -s "$holdfast_dir/reply" ] || [ -s "$holdfast_dir/code" ]; then
        echo "$1 $2 $(wc -c <"$holdfast_dir/reply") $(wc -c <"$holdfast_dir/code")" >&4
        cat "$holdfast_dir/reply" "$holdfast_dir/code" >&4
    else
        echo "$1 $2 0 0" >&4
    fi
}

while IFS=' ' read -r holdfast_verb holdfast_number holdfast_name holdfast_bytes holdfast_rest <&3; do
    case $holdfast_verb in
    put)
        head -c "$holdfast_bytes" <&3 >"$holdfast_dir/$holdfast_name" 4>&-
        echo "$holdfast_number $? 0 0" >&4
        ;;
    source)
        if [ "$holdfast_words" -eq 0 ]; then
            [ -z "$holdfast_errexit" ] || set -e
            . "$holdfast_dir/$holdfast_name" </dev/null 3<&- 4>&-
        else
            "$@" "$holdfast_dir/$holdfast_name" </dev/null 3<&- 4>&-
        fi
        echo "$holdfast_number $? 0 0" >&4
        case $- in *e*) holdfast_errexit=1 ;; *) holdfast_errexit= ;; esac
        set +e
        ;;
    run)
        head -c "$holdfast_bytes" <&3 >"$holdfast_dir/payload" 4>&-
        (
            export JOB_ID="${holdfast_rest%% *}"
            holdfast_rest="${holdfast_rest#* }"
            export JOB_ATTEMPT="${holdfast_rest%% *}" JOB_TASK="${holdfast_rest#* }"
            exec <"$holdfast_dir/payload" 3>"$holdfast_dir/reply" 4>"$holdfast_dir/code"
            if [ "$holdfast_words" -eq 0 ]; then
                [ -z "$holdfast_errexit" ] || set -e
                . "$holdfast_dir/$holdfast_name"
            else
                exec "$@" "$holdfast_dir/$holdfast_name"
            fi
        )
        holdfast_reply "$holdfast_number" $?
        ;;
    esac
done
