#!/bin/sh
# Programs that the tests drive beside Python: a browser for the app, bubblewrap for isolation;
# curl and the system's Python, which scripted agents use in their sandbox.
# Installs what is missing where that can be done without asking; else says what to install.
set -eu
missing=""
command -v chromium >/dev/null 2>&1 || missing="chromium"
command -v bwrap >/dev/null 2>&1 || missing="$missing bubblewrap"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
[ -x /usr/bin/python3 ] || missing="$missing python3"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$(printf ' %s' $missing)"
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
else
    echo "not installed, so the tests that need them are skipped:$(printf ' %s' $missing)" >&2
fi
