"""Attacks that other tests cover, and attacks without a test."""

from __future__ import annotations

from pathlib import Path

from .attack import Elsewhere, Uncovered

EARLY = "tests/e2e/test_early_data.py"
FLOODS = "tests/e2e/test_http3_floods.py"
HOSTILE = "tests/e2e/test_hostile_packets.py"
LIMITS = "tests/e2e/test_limits.py"
SMUGGLING = "tests/e2e/test_smuggling.py"
CONFORMANCE = "tests/e2e/test_h3spec.py::test_server_raises"
ENGINE_LIMITS = "crates/engine/tests/engine/limits.rs"
ENGINE_CONNECTIONS = "crates/engine/tests/engine/limits/connections.rs"
ENGINE_HEADS = "crates/engine/tests/engine/limits/heads.rs"
ENGINE_CONTENT = "crates/engine/tests/engine/limits/content.rs"
RESTART = "crates/engine/tests/engine/restart.rs"
H3_LIMITS = "crates/h3/tests/limits.rs"
H3_MEMORY = "crates/h3/tests/memory.rs"
QPACK = "crates/qpack/tests/decoder.rs"

ELSEWHERE = [
    Elsewhere(
        "early_data_from_a_forged_address",
        "TLS",
        "CVE-2024-49214 (HAProxy), CVE-2024-39321 (Traefik), H2O e392d980",
        "a recorded first flight requests much from an address that never sends again",
        "3 bytes for each one received; handlers see that a request is early",
        (f"{EARLY}::test_early_data_from_a_forged_address_is_not_amplified",),
    ),
    Elsewhere(
        "early_data_replay",
        "TLS",
        "RFC 8446 section 8",
        "a first flight is replayed, to one worker and to four, and after a restart",
        "each ticket is accepted once; unsafe methods get 425",
        (
            f"{EARLY}::test_recorded_first_flight_is_answered_once",
            f"{EARLY}::test_restarted_server_rejects_early_data_and_answers_after_the_handshake",
        ),
    ),
    Elsewhere(
        "cross_host_ticket_reuse",
        "TLS",
        "CVE-2025-23419 (nginx)",
        "a ticket of one host name is used for another",
        "a full handshake is made",
        (
            f"{EARLY}::test_ticket_of_one_host_is_rejected_for_another_over_quic",
            f"{EARLY}::test_ticket_of_one_host_is_rejected_for_another_over_tcp",
        ),
    ),
    Elsewhere(
        "stalled_handshake",
        "QUIC",
        "CVE-2025-54939 (LSQUIC, QUIC-LEAK)",
        "handshakes over TLS and QUIC that stall",
        "`handshake_timeout`; 3 bytes for each one received",
        (
            f"{ENGINE_CONNECTIONS}::tls_handshake_that_stalls_is_given_up",
            f"{ENGINE_CONNECTIONS}::quic_handshake_that_stalls_is_given_up_and_no_more_than_three_times_is_sent",
        ),
    ),
    Elsewhere(
        "connections_of_one_client",
        "QUIC",
        "arXiv 2412.08936 (QFAM)",
        "one client opens all connections, from its address or from forged ones",
        "`connections_per_client`, Retry from half of it on",
        (
            f"{ENGINE_CONNECTIONS}::client_over_its_share_is_refused_and_another_is_served",
            f"{ENGINE_CONNECTIONS}::quic_client_past_half_its_share_proves_its_address",
        ),
    ),
    Elsewhere(
        "malformed_packets",
        "QUIC",
        "CVE-2026-26081 (HAProxy), GO-2023-2160 (quic-go), RUSTSEC-2023-0063 (quinn)",
        "noise, truncated Initials, flipped bits, packets of other servers",
        "dropped, and counted as `datagrams_ignored`",
        (
            f"{HOSTILE}::test_random_datagrams_are_dropped",
            f"{HOSTILE}::test_truncated_initial_is_dropped",
            f"{HOSTILE}::test_reflected_packets_are_not_answered",
        ),
    ),
    Elsewhere(
        "token_replay",
        "QUIC",
        "RFC 9000 section 21.3",
        "a token is used twice, after a restart, or at a server with another secret",
        "`used_tokens`",
        (
            f"{RESTART}::replayed_token_proves_nothing",
            f"{RESTART}::token_of_a_server_with_another_secret_proves_nothing",
        ),
    ),
    Elsewhere(
        "stateless_reset_of_another_server",
        "QUIC",
        "CVE-2026-44434 (quicly)",
        "a server that has another secret tries to end a connection",
        "reset tokens are derived from the secret",
        (
            f"{RESTART}::server_with_another_secret_cannot_end_a_connection",
            f"{RESTART}::stateless_resets_are_few_and_smaller_than_what_asks_for_them",
        ),
    ),
    Elsewhere(
        "acknowledgement_of_what_was_never_sent",
        "QUIC",
        "CVE-2025-4820 (quiche a376c9b4)",
        "an ACK of numbers far ahead, and of a range below 0",
        "PROTOCOL_VIOLATION, FRAME_ENCODING_ERROR",
        (CONFORMANCE,),
    ),
    Elsewhere(
        "crypto_beyond_the_buffer",
        "QUIC",
        "CVE-2024-1765 (quiche)",
        "endless CRYPTO frames after the handshake, with gaps",
        "CRYPTO_BUFFER_EXCEEDED",
        (CONFORMANCE,),
    ),
    Elsewhere(
        "rapid_reset_over_http3",
        "HTTP/3",
        "CVE-2023-44487 (Rapid Reset), CVE-2025-8671 (MadeYouReset)",
        "requests that are cancelled at once, or that the server must reset",
        "`aborted_requests` (H3_EXCESSIVE_LOAD)",
        (
            f"{FLOODS}::test_aborted_requests_over_the_limit_close_the_connection",
            f"{H3_LIMITS}::aborted_requests_close_connection",
        ),
    ),
    Elsewhere(
        "useless_frames_over_http3",
        "HTTP/3",
        "CVE-2019-9518, adapted to HTTP/3",
        "unknown and empty frames, unknown frames that announce a large size, repeated MAX_PUSH_ID",
        "`useless_frames`, `useless_bytes`, `control_stream_frames` (H3_EXCESSIVE_LOAD)",
        (
            f"{FLOODS}::test_useless_frames_close_the_connection",
            f"{FLOODS}::test_control_frames_over_the_limit_close_the_connection",
            f"{H3_MEMORY}::floods_hold_little_whatever_they_consist_of",
        ),
    ),
    Elsewhere(
        "unidirectional_stream_flood",
        "HTTP/3",
        "draft-chen-quic-logical-vuln-mitigations",
        "streams of unknown types, and streams over the limit",
        "`unknown_streams`, `uni_streams`",
        (
            f"{H3_LIMITS}::streams_of_unknown_type_are_limited",
            f"{LIMITS}::test_stream_over_the_limit_closes_the_connection",
        ),
    ),
    Elsewhere(
        "qpack_table_abuse",
        "HTTP/3",
        "RFC 9204 section 7",
        "entries larger than the table, Huffman strings, more blocked streams than allowed",
        "the table's capacity is checked before an entry arrives",
        (
            f"{QPACK}::string_larger_than_the_capacity_is_refused_before_it_arrives",
            f"{QPACK}::more_blocked_streams_than_promised_are_refused",
            f"{H3_MEMORY}::blocked_streams_hold_their_sections_and_no_more",
        ),
    ),
    Elsewhere(
        "slow_bytes",
        "HTTP/1.1",
        "Slowloris (2009), Slow POST (2010)",
        "heads and content sent byte by byte, without a long pause",
        "`head_timeout`, `body_bytes_per_second`",
        (
            f"{ENGINE_HEADS}::slow_head_over_http1_is_given_up_though_bytes_come",
            f"{ENGINE_HEADS}::slow_head_over_http2_is_given_up_though_bytes_come",
            f"{ENGINE_CONTENT}::content_that_comes_too_slowly_is_answered_408",
        ),
    ),
    Elsewhere(
        "request_smuggling",
        "HTTP/1.1",
        "CVE-2026-33555 (HAProxy), CVE-2026-100659 and 100663 (Netty), and the classes CL.TE, TE.CL, TE.TE",
        "messages that two parsers interpret differently, over each protocol",
        "rejected where a strict parser sees anything but one message",
        (
            f"{SMUGGLING}::test_message_has_one_reading",
            f"{SMUGGLING}::test_http2_request_that_would_split_is_rejected",
            f"{SMUGGLING}::test_http3_request_that_would_split_is_rejected",
            f"{SMUGGLING}::test_mutated_message_is_read_like_by_a_strict_parser",
        ),
    ),
    Elsewhere(
        "responses_that_share_a_connection",
        "HTTP/2",
        "CVE-2019-9517 (internal data buffering)",
        "200 responses whose client opens all windows and reads nothing",
        "`send_window_bytes` of the connection, not of each stream",
        (f"{ENGINE_LIMITS}::streams_of_a_connection_share_what_may_wait_to_be_sent",),
    ),
    Elsewhere(
        "panics_of_parsers",
        "HTTP/3",
        "CVE-2025-59530 (quic-go), GO-2023-2160",
        "inputs found by fuzzing, and continued fuzzing",
        "no input of a peer may cause a panic",
        ("fuzz/tests/corpus.rs::every_kept_input_is_handled",),
    ),
]

UNCOVERED = [
    Uncovered(
        "Collisions of connection IDs in hash tables",
        "CVE-2025-23020 (kwik), CVE-2025-24947 (lsquic), CVE-2025-24946 (picoquic)",
        "By code review only. Values that a client chooses, its first destination ID and its address, are in "
        "tables of the standard library, whose hash has a random key; the plain hash is only for IDs that the "
        "server draws at random. No test can show the absence of collisions.",
    ),
    Uncovered(
        "Memory safety",
        "CVE-2024-24989, CVE-2024-32760, CVE-2026-42530 (nginx), CVE-2024-32974 (Envoy)",
        "By language: the parsing crates forbid `unsafe`. Cryptography and the kernel are third-party code.",
    ),
    Uncovered(
        "The path before the last, when a client moves twice",
        "RFC 9000 section 9.3.3",
        "The transport library answers each PATH_CHALLENGE with 1200 bytes, whatever its size. The engine withholds "
        "more than three times the bytes received from an address, and with it the library's PATH_CHALLENGE to "
        "an address that the client has left, unless it is that of the handshake.",
    ),
    Uncovered(
        "Guessed acknowledgements",
        "CVE-2025-4820 (quiche)",
        "The server skips packet numbers to detect a client that acknowledges ahead, more rarely as a connection "
        "gets older. A client that guesses few numbers at a time may be faster than it should for a while.",
    ),
    Uncovered(
        "Two datagrams more than three times the bytes received",
        "RFC 9000 section 8.1",
        "The transport library sends a whole datagram as long as it has any credit left for an unvalidated "
        "address, and an MTU probe in addition. Both are bounded; the rule is exceeded by up to 2904 bytes.",
    ),
    Uncovered(
        "More packets than the link or the processor can handle",
        "",
        "A server cannot prevent it: no packet costs more than its own work, and existing connections are served "
        "before new ones.",
    ),
    Uncovered(
        "Many addresses at once",
        "",
        "Limits per client apply to one address or one /64. All clients together are limited by `connections`, "
        "`open_requests` and `window_budget_bytes`.",
    ),
]


def is_there(root: Path, reference: str) -> bool:
    """Returns whether a test named on the page exists."""
    path, _, name = reference.partition("::")
    file = root / path
    return file.is_file() and any(
        f"{keyword} {name}(" in file.read_text() for keyword in ("def", "fn")
    )
