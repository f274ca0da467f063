#!/bin/sh
# Unpacks a release of keelson for a step of CI or a hook, and prints the directory of its programs.
#
# Usage: setup-keelson.sh [--envtest] ARCHIVE_OR_URL DIRECTORY [SHA256]
#
# ARCHIVE_OR_URL is keelson-VERSION-linux-ARCH.tar.gz, or with --envtest the archive for envtest. With SHA256 another
# file is refused. Then, for example:
#
#   PATH="$(packaging/github/setup-keelson.sh keelson-0.1.0-linux-amd64.tar.gz .keelson):$PATH"
#   KUBEBUILDER_ASSETS="$(packaging/github/setup-keelson.sh --envtest envtest-v1.37.0-linux-amd64.tar.gz .envtest)"
set -eu
components=1
if [ "${1:-}" = --envtest ]; then
    components=2
    shift
fi
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
source=$1 directory=$2 sum=${3:-}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
partial=$directory/.unpacking
rm -rf "$partial"
mkdir "$partial"
trap 'rm -rf "$partial"' EXIT INT TERM
archive=$partial/archive
case $source in
    http://* | https://*) curl --fail --silent --show-error --location --retry 3 --output "$archive" "$source" ;;
    *) cp "$source" "$archive" ;;
esac
if [ -n "$sum" ] && ! printf '%s  %s\n' "$sum" "$archive" | sha256sum --check --status; then
    echo "setup-keelson: $source has another SHA-256 checksum than $sum" >&2
    exit 1
fi
mkdir "$partial/files"
tar -xzf "$archive" -C "$partial/files" --strip-components=$components
if [ $components = 2 ]; then program=kube-apiserver; else program=keelson; fi
if [ ! -x "$partial/files/$program" ]; then
    echo "setup-keelson: there is no $program in $source" >&2
    exit 1
fi
"$partial/files/$program" --version >&2
rm -rf "$directory/bin"
mv "$partial/files" "$directory/bin"
echo "$directory/bin"
