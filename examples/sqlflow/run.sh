#!/usr/bin/env bash
# Statements become models and columns of PostgreSQL: by `edl sql`, and by the program that SQLFlow
# would generate. Prints how near the predictions are, beside those of scikit-learn.
#   examples/sqlflow/run.sh [ROWS]       also learns from so many generated rows, for example 200000
# Needs Debian's postgresql, and edl-client[local,sql], edl-worker[cpu] and scikit-learn in the path.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rows=${1:-0}
programs=$(find /usr/lib/postgresql -path '*/bin/initdb' -printf '%h\n' | sort -V | tail -n 1)
work=$(mktemp -d /tmp/edl-sqlflow.XXXXXX)
server=
finish() { # also after an error and a signal
    if [ -n "$server" ]; then
        kill -QUIT "$server" 2>/dev/null || true
        wait "$server" || true
    fi
    rm -rf "$work"
}
trap finish EXIT
PGPASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export PGPASSWORD
echo "$PGPASSWORD" >"$work/password"

user=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses to run as root
    chown -R nobody "$work"
    user=(--reuid=nobody --regid=nogroup --clear-groups)
fi
as_server() { # in a subshell, which becomes the program, and ends with this script
    cd "$work"
    exec setpriv "${user[@]}" --pdeathsig QUIT "$@"
}
(as_server "$programs/initdb" -D "$work/data" -U edl --auth=scram-sha-256 \
    --pwfile="$work/password" -E UTF8 --locale=C --no-sync >"$work/log")
as_server "$programs/postgres" -D "$work/data" -c listen_addresses= \
    -c unix_socket_directories="$work" >>"$work/log" 2>&1 &
server=$!
until "$programs/pg_isready" -q -h "$work"; do
    kill -0 $server || { cat "$work/log" >&2; exit 1; }
    sleep 0.1
done
export SQLFLOW_DATABASE="postgresql://edl@/postgres?host=$work"
export SQLFLOW_FOLDER="$work/job" SQLFLOW_MODEL_ZOO="$here/../../model_zoo"

python "$here/tables.py" fill "$SQLFLOW_DATABASE"
edl sql --db "$SQLFLOW_DATABASE" --model-zoo "$SQLFLOW_MODEL_ZOO" --models "$work/models" \
    "$here/statements.sql"
# The submitter runs the first two of these statements, and writes the same column.
python "$here/tables.py" rename "$SQLFLOW_DATABASE"
python "$here/submitter.py"
if [ "$rows" -gt 0 ]; then
    python "$here/tables.py" generate "$SQLFLOW_DATABASE" "$rows"
    edl sql --db "$SQLFLOW_DATABASE" --model-zoo "$SQLFLOW_MODEL_ZOO" --models "$work/models" \
        "$here/rides.sql"
fi
python -W ignore "$here/tables.py" compare "$SQLFLOW_DATABASE"
