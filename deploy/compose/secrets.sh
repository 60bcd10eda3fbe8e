#!/bin/sh
# Makes the secrets of compose.yaml, once: what is there stays. Usage: ./secrets.sh NAME-OF-THE-HUB
# tls.crt and tls.key are self-signed, to begin with: put those of your authority in their place.
set -eu
name=${1:?the name of the hub, such as hub.example.org}
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
cd secrets

random() { openssl rand -hex 32; }
keep() { [ -e "$1" ] || cat >"$1"; }

random | keep postgres_password
random | keep valkey_password
random | keep secret_key
# A Fernet key: 32 bytes in the alphabet of URLs.
openssl rand -base64 32 | tr '+/' '-_' | keep secret_keys
echo "postgresql://rmhub:$(cat postgres_password)@postgres:5432/rmhub" | keep database_url
echo "redis://:$(cat valkey_password)@valkey:6379/0" | keep redis_url
printf 'requirepass %s\nsave ""\nappendonly no\n' "$(cat valkey_password)" | keep valkey_conf
[ -e tls.key ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90 \
    -keyout tls.key -out tls.crt -subj "/CN=$name" -addext "subjectAltName=DNS:$name" 2>/dev/null

# Compose mounts these files as they are, and no process is root: each file belongs to the user that reads it.
if [ "$(id -u)" != 0 ]; then
    echo "not root: give secrets/ to the users that compose.yaml names (the last lines of secrets.sh)" >&2
    exit 0
fi
chown 10001 secret_key secret_keys database_url redis_url
chown 999 postgres_password valkey_conf
chown 10002 tls.crt tls.key
