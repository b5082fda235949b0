"""The bench suite `fleet`: what sessions in Redis and keys on a signer cost."""
