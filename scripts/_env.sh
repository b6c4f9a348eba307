# shellcheck shell=bash
# Sourced by the scripts beside it: makes and refreshes the virtual environments of this checkout.
# Takes `root`, the checkout. Writes to stderr only: stdout belongs to the command that follows.

# Not 1 to 5: those say how a run ended (scripts/ahbm-launch shares its exit code with ahbm-launch).
SETUP_FAILED=69

# help_if_asked ARGS...: the comment at the top of the script, with exit status 0, if an argument asks for it.
help_if_asked() {
    local arg
    for arg in "$@"; do
        [[ $arg != -- ]] || return 0
        [[ $arg == -h || $arg == --help ]] || continue
        sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$self"
        exit 0
    done
}

say() { printf 'ahbm: %s\n' "$*" >&2; }
die() { say "$@"; exit "$SETUP_FAILED"; }

# find_python CANDIDATE... sets `python`, or `why_no_python` and fails.
# Each candidate is run: a version manager's stub may be on PATH without the Python behind it.
find_python() {
    local p path
    why_no_python="no Python 3.11 or newer on PATH (looked for: $*)"
    for p in "$@"; do
        path=$(command -v -- "$p") || continue
        "$path" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1 || continue
        if "$path" -I -c 'import venv, ensurepip' </dev/null >/dev/null 2>&1; then
            python=$path
            return 0
        fi
        why_no_python="$path lacks the venv and ensurepip modules (Debian: apt-get install python3-venv)"
    done
    return 1
}

# The lower bounds are tried on the oldest Python at hand, everything else runs on the newest.
find_python_for() {
    if [[ -n ${AHBM_PYTHON:-} ]]; then find_python "$AHBM_PYTHON"
    elif [[ $1 == oldest ]]; then find_python python3.11 python3.12 python3.13 python3
    else find_python python3.13 python3.12 python3.11 python3
    fi
}

# What a finished set-up was made from. The path is part of it: a checkout that was copied or moved
# together with its environment would otherwise run the code of the old place.
identity() {
    local locks=(constraints.txt)
    [[ $1 == oldest ]] && locks+=(constraints-oldest.txt)
    CDPATH='' cd -- "$root" && printf '%s\n' "$root" && cksum pyproject.toml "${locks[@]}"
}

# fresh VENV KIND ID. The `test` environment holds all of the `runtime` one.
fresh() {
    [[ -x $1/bin/python && -r $1/.ahbm-stamp ]] || return 1
    local have
    have=$(<"$1/.ahbm-stamp")
    [[ $have == "$2"$'\n'"$3" || ($2 == runtime && $have == test$'\n'"$3") ]]
}

# ensure_env DIR KIND: DIR under `root`; KIND is runtime, test or oldest.
ensure_env() {
    local venv=$root/$1 id
    id=$(identity "$2") || die "cannot read what $1 is made from"
    fresh "$venv" "$2" "$id" && return
    (
        # The lock is on the checkout's directory itself: it leaves no file. pip inherits it, so a set-up
        # whose script was killed still keeps others out until its pip has ended.
        if command -v flock >/dev/null; then
            flock -n 9 || { say "waiting for another set-up of $1"; flock 9; }
        fi
        fresh "$venv" "$2" "$id" || set_up "$1" "$2" "$id"
    ) 9<"$root" || exit
}

set_up() {
    local dir=$1 kind=$2 id=$3 venv=$root/$1 old='' made
    [[ -r $venv/.ahbm-stamp ]] && old=$(<"$venv/.ahbm-stamp")
    # A refresh takes no extra away.
    [[ $kind == runtime && $old == 'test'$'\n'* ]] && kind='test'
    made=$(printf '%s\n' "$old" | sed -n 2p)
    trap 'exit 130' INT
    trap 'exit 143' TERM

    # Only a finished set-up of ours, or an environment that someone else made, is kept and updated in place.
    if [[ -e $venv/.ahbm-made && ( ! -x $venv/bin/python || $made != "$root" ) ]]; then
        rm -rf -- "$venv" || die "cannot remove the unfinished $dir"
    fi
    if [[ -e $venv ]]; then
        [[ -x $venv/bin/python ]] || die "$dir exists but holds no Python: move it away"
        say "updating $dir"
    else
        find_python_for "$kind" || die "$why_no_python"
        say "setting up $dir (first use)"
        mkdir -- "$venv" && : >"$venv/.ahbm-made" && printf '*\n' >"$venv/.gitignore" || die "cannot write $dir"
        isolated "$python" -I -m venv -- "$venv" >"$venv/setup.log" 2>&1 || failed "venv" "$dir"
    fi

    # Without a stamp an interrupted set-up is not taken for a finished one.
    rm -f -- "$venv/.ahbm-stamp"
    if ! install_into "$dir" "$kind" >"$venv/setup.log" 2>&1; then
        # pip failed by itself, and has undone what it began: the environment is what it was.
        [[ -z $old ]] || printf '%s\n' "$old" >"$venv/.ahbm-stamp"
        failed "pip" "$dir"
    fi
    printf '%s\n' "$kind" "$id" >"$venv/.ahbm-stamp"
}

# failed WHAT DIR
failed() {
    tail -n 20 -- "$root/$2/setup.log" >&2
    die "setting up failed: $1 (its last lines are above, all of them in $2/setup.log)"
}

isolated() { env -u PYTHONHOME -u PYTHONPATH -u PIP_TARGET -u PIP_PREFIX PIP_USER=0 "$@" </dev/null; }

# install_into DIR KIND. The lock also binds the isolated build of the project itself: older pip hands
# PIP_CONSTRAINT on to it, newer pip reads PIP_BUILD_CONSTRAINT. Both split at blanks, hence relative paths.
install_into() {
    local dir=$1 what=. lock=constraints.txt
    CDPATH='' cd -- "$root" || return
    if [[ $2 == oldest ]]; then
        lock=$dir/constraints.txt
        merge_locks constraints-oldest.txt constraints.txt >"$lock" || return
    fi
    [[ $2 == runtime ]] || what='.[test]'
    isolated PIP_CONSTRAINT="$lock" PIP_BUILD_CONSTRAINT="$lock" \
        "$dir/bin/python" -m pip install --no-input --disable-pip-version-check -c "$lock" -e "$what" || return
    # pip compiles what it copies, not a checkout; and where PYTHONDONTWRITEBYTECODE is set, no command would.
    isolated env -u PYTHONDONTWRITEBYTECODE "$dir/bin/python" -m compileall -q ahbm_sim broker sipsim launcher
}

# merge_locks FIRST SECOND: every pin of FIRST, and those of SECOND that FIRST does not name.
merge_locks() {
    awk -F '==' '
        /^[[:space:]]*(#|$)/ { next }
        { name = tolower($1); gsub(/[-_.]+/, "-", name) }
        NR == FNR { first[name] = 1; print; next }
        !(name in first)
    ' "$1" "$2"
}
