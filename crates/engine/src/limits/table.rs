//! The table itself.

use std::time::Duration;

use super::{
    BLOCKED_STREAM_BYTES, CONNECTION_BYTES, DATAGRAM_BYTES, EXCHANGE_BYTES, HANDSHAKE_BYTES, LARGEST_SESSION_BYTES, Limit, LimitError,
    SESSION_BYTES, SESSION_STREAM_BYTES, STREAM_BYTES, Scope, USED_TOKEN_BYTES, Unit, milliseconds,
};

/// The Rust type of a limit, and the way between it and the table's number.
macro_rules! typed {
    (type Time) => {
        Duration
    };
    (type $unit:ident) => {
        u64
    };
    (from Time, $value:expr) => {
        Duration::from_millis($value)
    };
    (from $unit:ident, $value:expr) => {
        $value
    };
    (into Time, $value:expr) => {
        milliseconds($value)
    };
    (into $unit:ident, $value:expr) => {
        $value
    };
}

macro_rules! limits {
    ($(
        #[doc = $what:literal]
        $name:ident, $setter:ident: $unit:ident, $default:expr, $min:expr => $max:expr, $scope:ident;
            memory $memory:expr;
            counter $counter:ident;
            acts $acts:literal;
    )+) => {
        /// What peers may take: connections, memory, time. The default is safe on the open internet.
        ///
        /// [`Limits::table`] has all there is to know of each; `docs/limits.md` is made of it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $($name: u64,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        static TABLE: &[Limit] = &[$(
            Limit {
                name: stringify!($name),
                what: $what.trim_ascii(),
                acts: $acts,
                scope: Scope::$scope,
                unit: Unit::$unit,
                default: $default,
                min: $min,
                max: $max,
                counter: stringify!($counter),
                count: |stats| &stats.$counter,
                read: |limits| limits.$name,
                write: |limits, value| limits.$name = value,
                memory: $memory,
            },
        )+];

        impl Limits {
            /// All limits, in the order of the documentation.
            pub fn table() -> &'static [Limit] {
                TABLE
            }

            $(
                #[doc = $what]
                pub fn $name(&self) -> typed!(type $unit) {
                    typed!(from $unit, self.$name)
                }

                #[doc = concat!("The same limits, with another [`Limits::", stringify!($name), "`].")]
                ///
                /// # Errors
                ///
                /// When the value is out of the range that the table gives.
                pub fn $setter(mut self, value: typed!(type $unit)) -> Result<Self, LimitError> {
                    let limit = Self::find(stringify!($name))?;
                    self.$name = limit.check(typed!(into $unit, value))?;
                    Ok(self)
                }
            )+
        }
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;

limits! {
    /// Connections open at once, over TCP and QUIC together.
    connections, with_connections: Count, 100_000, 1 => 100_000_000, Group;
        memory |limits| limits.connections.saturating_mul(CONNECTION_BYTES);
        counter connections_refused;
        acts "A new connection is refused: over QUIC with CONNECTION_REFUSED, over TCP it is closed. From three quarters on, QUIC clients have to prove their address first (Retry).";

    /// Connections open at once from one client address, an IPv4 address or the /64 of an IPv6 address, over TCP and QUIC together.
    connections_per_client, with_connections_per_client: Count, 2_048, 1 => 100_000_000, Client;
        memory |limits| limits.connections_per_client.saturating_mul(CONNECTION_BYTES);
        counter connections_refused_per_client;
        acts "A new connection is refused. From half on, QUIC clients have to prove their address first (Retry), so that forged packets cannot use up what is an honest client's.";

    /// QUIC handshakes open at once.
    open_handshakes, with_open_handshakes: Count, 1_000, 0 => 10_000_000, Worker;
        memory |limits| limits.open_handshakes.saturating_mul(HANDSHAKE_BYTES);
        counter quic_retries_sent;
        acts "New clients have to prove their address first (Retry), which costs them a round trip, and one with forged addresses everything. A token of an earlier connection proves it as well.";

    /// How long the handshake of a connection may take, QUIC or TLS over TCP.
    handshake_timeout, with_handshake_timeout: Time, 10 * SECOND, 100 => HOUR, Connection;
        memory |_| 0;
        counter handshakes_timed_out;
        acts "The connection is closed.";

    /// How long a connection may be silent while no handler is at work for it.
    idle_timeout, with_idle_timeout: Time, 30 * SECOND, 100 => HOUR, Connection;
        memory |_| 0;
        counter idle_timeouts;
        acts "The connection is closed; over HTTP/2 after a GOAWAY.";

    /// How long the head of a request may take from its first byte to its last.
    head_timeout, with_head_timeout: Time, 10 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter head_timeouts;
        acts "Over HTTP/3 the stream is reset, over HTTP/1.1 and HTTP/2 the connection is closed.";

    /// How long a handler that reads content of a request may wait for the next byte of it.
    body_timeout, with_body_timeout: Time, 20 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter body_timeouts;
        acts "The content ends with an error and the request is answered 408. While a response goes out content may rest as long as the connection; when that is complete, whoever still reads waits no longer than this.";

    /// The slowest that content of a request may come while a handler waits for it, averaged over all that it has waited; looked at once that is more than `body_timeout`.
    body_bytes_per_second, with_body_bytes_per_second: BytesPerSecond, 240, 0 => GIB, Request;
        memory |_| 0;
        counter bodies_too_slow;
        acts "The content ends with an error and the request is answered 408.";

    /// Bytes of content of a request.
    request_body_bytes, with_request_body_bytes: Bytes, GIB, 0 => 1 << 62, Request;
        memory |_| 0;
        counter bodies_too_large;
        acts "The request is answered 413: at once where `content-length` says so, otherwise when the limit is passed. Nothing is held for it, since content is read only as the handler reads.";

    /// How long a peer may take no byte of a response that waits for it. One that waits for others of its connection does not count. The other way round, as a client over HTTP/2 and HTTP/3: how long content of a request may not move when the server's response is complete.
    response_timeout, with_response_timeout: Time, 30 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter response_timeouts;
        acts "Over HTTP/2 and HTTP/3 the stream is reset, over HTTP/1.1 the connection is closed.";

    /// The slowest that a peer may take a response that waits for it, averaged over each `response_timeout`, and that content of a request may move when its response is complete.
    response_bytes_per_second, with_response_bytes_per_second: BytesPerSecond, 240, 0 => GIB, Request;
        memory |_| 0;
        counter responses_too_slow;
        acts "As with `response_timeout`.";

    /// Requests open at once on a connection.
    concurrent_streams, with_concurrent_streams: Count, 256, 1 => 100_000, Connection;
        memory |limits| limits.concurrent_streams.saturating_mul(STREAM_BYTES);
        counter streams_refused;
        acts "Over HTTP/2 the stream is reset with REFUSED_STREAM, over HTTP/3 the connection is closed with STREAM_LIMIT_ERROR. An HTTP/3 client is allowed 100 at first, and half more each time that it uses three quarters of those that it may. What they hold together is up to `open_requests`; what is kept for the next ones stands here.";

    /// Requests that a worker has open at once, on all of its connections.
    open_requests, with_open_requests: Count, 10_000, 1 => 10_000_000, Worker;
        memory |limits| limits.open_requests.saturating_mul(limits.field_section_bytes + EXCHANGE_BYTES);
        counter requests_shed;
        acts "The request is answered 503 with `retry-after: 1`.";

    /// Requests that a worker has open after they went on in another protocol (WebSocket, extended CONNECT); they do not count among `open_requests`.
    open_tunnels, with_open_tunnels: Count, 20_000, 0 => 10_000_000, Worker;
        memory |limits| limits.open_tunnels.saturating_mul(EXCHANGE_BYTES);
        counter tunnels_refused;
        acts "The request is answered 503 with `retry-after: 1`.";

    /// Bytes of a WebSocket message that is received, decompressed.
    websocket_message_bytes, with_websocket_message_bytes: Bytes, MIB, 125 => 1 << 40, Request;
        memory |limits| 2 * limits.websocket_message_bytes;
        counter websocket_messages_too_large;
        acts "The connection is closed with 1009. Nothing is allocated before it has come.";

    /// Bytes of WebSocket messages that wait for the peer before their sender has to wait, too.
    websocket_backlog_bytes, with_websocket_backlog_bytes: Bytes, 64 * KIB, 1 => 1 << 40, Request;
        memory |limits| limits.websocket_backlog_bytes;
        counter websocket_senders_held_back;
        acts "Sending waits. A handler that does not wait for it is told how much there is.";

    /// How long a WebSocket peer may be silent. It is asked (ping) when half of that has passed.
    websocket_timeout, with_websocket_timeout: Time, 120 * SECOND, 100 => 24 * HOUR, Request;
        memory |_| 0;
        counter websockets_timed_out;
        acts "The stream is reset, over HTTP/1.1 the connection is closed.";

    /// How long a WebSocket peer may take to answer a close.
    websocket_close_timeout, with_websocket_close_timeout: Time, 10 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter websocket_closes_timed_out;
        acts "As with `websocket_timeout`.";

    /// Heads over HTTP/3 that a worker has received in part, or that wait for the header table.
    partial_heads, with_partial_heads: Count, 4_096, 1 => 10_000_000, Worker;
        memory |limits| limits.partial_heads.saturating_mul(limits.field_section_bytes);
        counter partial_heads_refused;
        acts "The stream is reset with H3_REQUEST_REJECTED, which tells the client that it may ask again.";

    /// Bytes of a request's head, as RFC 9114, section 4.2.2 counts them. Over HTTP/1.1 the bytes on the wire. The other way round, as a client and towards upstreams: bytes of a response's head.
    field_section_bytes, with_field_section_bytes: Bytes, 64 * KIB, KIB => 16 * MIB, Request;
        memory |limits| 2 * limits.field_section_bytes;
        counter heads_too_large;
        acts "The request is answered 431. A response with a larger head is an error of its server: the gateway answers 502.";

    /// Field lines of a request's head, and of the head of a server's response over HTTP/1.1 and HTTP/3.
    field_lines, with_field_lines: Count, 200, 1 => 10_000, Request;
        memory |_| 0;
        counter heads_too_many_lines;
        acts "The request is answered 431. Their bytes are those of `field_section_bytes`.";

    /// Bytes that a peer may send on a stream ahead of their being read. Above 3 MiB a burst of losses can leave more gaps in a stream than the QUIC library takes, and it closes the connection.
    stream_window_bytes, with_stream_window_bytes: Bytes, 3 * MIB, KIB => GIB, Request;
        memory |limits| limits.stream_window_bytes.min(limits.connection_window_bytes);
        counter stream_window_overruns;
        acts "A peer that sends more breaks the protocol: over HTTP/2 the stream is reset with FLOW_CONTROL_ERROR, over HTTP/3 the connection is closed and counted as below.";

    /// Bytes that a peer may send on all streams of a connection ahead of their being read, to begin with.
    first_window_bytes, with_first_window_bytes: Bytes, MIB, KIB => GIB, Connection;
        memory |limits| limits.first_window_bytes.min(limits.connection_window_bytes);
        counter windows_grown;
        acts "The window doubles, up to `connection_window_bytes`, when the peer sends half of it within two round trips, or, over HTTP/3, when half of it waits to be read.";

    /// Bytes that a peer may send on all streams of a connection ahead of their being read, when it has shown that its path carries as much.
    connection_window_bytes, with_connection_window_bytes: Bytes, 16 * MIB, KIB => GIB, Connection;
        memory |limits| limits.connection_window_bytes;
        counter connection_window_overruns;
        acts "A peer that sends more breaks the protocol: the connection is closed with FLOW_CONTROL_ERROR.";

    /// Bytes sent and not yet acknowledged, or waiting in the transport, of a connection. Each stream holds besides them the piece of its body that is next.
    send_window_bytes, with_send_window_bytes: Bytes, 16 * MIB, KIB => GIB, Connection;
        memory |limits| limits.send_window_bytes;
        counter send_window_waits;
        acts "The producer of the body waits.";

    /// Bytes that connections of a worker may hold of what they send: over QUIC and, with what the kernel holds, over TCP beyond 256 KiB each, and over HTTP/2 beyond 32 KiB each.
    send_budget_bytes, with_send_budget_bytes: Bytes, GIB, MIB => 1 << 50, Worker;
        memory |limits| limits.send_budget_bytes;
        counter send_windows_reduced;
        acts "Connections hold less, a 64th of what is left of the budget, and may not send as fast as their path allows: over QUIC less than twice their congestion window, over TCP no more than the kernel holds already.";

    /// Bytes of windows for receiving promised to all connections of a worker.
    window_budget_bytes, with_window_budget_bytes: Bytes, 4 * GIB, MIB => 1 << 50, Worker;
        memory |limits| limits.window_budget_bytes;
        counter windows_reduced;
        acts "New connections get smaller windows, a 64th of what is left of the budget, 64 KiB at the least, and windows larger than that do not grow.";

    /// Bytes of a request over HTTP/2 that are still taken in, and dropped, after it was answered before its end, beyond those that the stream's window let the client send before it could see the answer.
    linger_bytes, with_linger_bytes: Bytes, 64 * KIB, 0 => GIB, Request;
        memory |_| 0;
        counter linger_overruns;
        acts "The stream is reset with NO_ERROR.";

    /// How long the rest of such a request is waited for.
    linger_timeout, with_linger_timeout: Time, 5 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter linger_timeouts;
        acts "The stream is reset with NO_ERROR.";

    /// Interim responses, such as 103 (Early Hints), that a handler may send to a request. Each is held until the client takes it.
    interim_responses, with_interim_responses: Count, 16, 0 => 1_000, Request;
        memory |_| 0;
        counter interim_responses_dropped;
        acts "The interim response is not sent. What the others hold is up to the handler.";

    /// Requests that the peer may take back in a second, over HTTP/2, after a burst of five times as many.
    resets_per_second, with_resets_per_second: PerSecond, 100, 1 => 1_000_000, Connection;
        memory |_| 0;
        counter reset_floods;
        acts "The connection is closed with ENHANCE_YOUR_CALM. Requests that it took back before they reached a handler are held to `resets_before_accept` as well.";

    /// Requests that the peer has taken back over HTTP/2 before they reached a handler, waiting to be dropped.
    resets_before_accept, with_resets_before_accept: Count, 20, 1 => 100_000, Connection;
        memory |_| 0;
        counter reset_floods_before_accept;
        acts "The connection is closed with ENHANCE_YOUR_CALM.";

    /// Streams that this side had to reset over HTTP/2 for the peer's errors, in the life of a connection.
    stream_errors, with_stream_errors: Count, 1_024, 1 => 100_000, Connection;
        memory |_| 0;
        counter stream_error_floods;
        acts "The connection is closed with ENHANCE_YOUR_CALM.";

    /// Frames over HTTP/2 that carry nothing, SETTINGS, PING, PRIORITY, repeated RST_STREAM, unknown and empty ones and tiny window updates, in a second after a burst of five times as many; each 4 KiB of content in either direction allow one more.
    control_frames_per_second, with_control_frames_per_second: PerSecond, 1_000, 10 => 1_000_000, Connection;
        memory |_| 0;
        counter control_frame_floods;
        acts "The connection is closed.";

    /// Frames of one head over HTTP/2: HEADERS and its CONTINUATIONs. As many as `field_section_bytes` needs are always taken.
    continuation_frames, with_continuation_frames: Count, 6, 1 => 1_000, Request;
        memory |_| 0;
        counter continuation_floods;
        acts "The connection is closed.";

    /// By how many unknown frames and DATA frames without content may exceed the useful ones over HTTP/3.
    useless_frames, with_useless_frames: Count, 1_000, 16 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter useless_frame_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// By how many bytes what is in unknown frames and streams may exceed the useful bytes over HTTP/3.
    useless_bytes, with_useless_bytes: Bytes, MIB, 4 * KIB => GIB, Connection;
        memory |_| 0;
        counter useless_byte_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// By how many unidirectional streams of unknown type may exceed the requests over HTTP/3.
    unknown_streams, with_unknown_streams: Count, 100, 8 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter unknown_stream_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// By how many frames on the control stream may exceed four for each request over HTTP/3.
    control_stream_frames, with_control_stream_frames: Count, 1_000, 16 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter control_stream_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// By how many requests that the peer takes back, or that break a rule, before their response was sent may exceed those that ended well over HTTP/3.
    aborted_requests, with_aborted_requests: Count, 500, 1 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter aborted_request_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// Unidirectional streams that a peer may open over HTTP/3: its control stream, two of QPACK and room for reserved types.
    uni_streams, with_uni_streams: Count, 8, 3 => 1_000, Connection;
        memory |limits| limits.uni_streams.saturating_mul(limits.stream_window_bytes).min(limits.connection_window_bytes);
        counter uni_streams_refused;
        acts "The connection is closed with STREAM_LIMIT_ERROR.";

    /// Bytes of the header table (QPACK) that a peer may fill over HTTP/3, as RFC 9204, section 3.2.1 counts them. It takes twice as much memory at the most.
    qpack_table_bytes, with_qpack_table_bytes: Bytes, 4 * KIB, 0 => MIB, Connection;
        memory |limits| 2 * limits.qpack_table_bytes;
        counter qpack_tables_exceeded;
        acts "The peer is told. One that takes more breaks the protocol: the connection is closed with QPACK_ENCODER_STREAM_ERROR.";

    /// Heads over HTTP/3 that may wait for the header table. Each may hold 64 KiB of what came with it; those of a worker are held to `partial_heads` as well.
    qpack_blocked_streams, with_qpack_blocked_streams: Count, 16, 0 => 1_024, Connection;
        memory |limits| limits.qpack_blocked_streams.saturating_mul(limits.field_section_bytes + BLOCKED_STREAM_BYTES);
        counter qpack_blocked_streams_exceeded;
        acts "The peer is told. One that makes more wait breaks the protocol: the connection is closed with QPACK_DECOMPRESSION_FAILED.";

    /// Bytes that are used of the header table that a peer offers over HTTP/3. They take three times as much memory at the most.
    qpack_encoder_table_bytes, with_qpack_encoder_table_bytes: Bytes, 4 * KIB, 0 => MIB, Connection;
        memory |limits| 3 * limits.qpack_encoder_table_bytes;
        counter qpack_tables_reduced;
        acts "The table is made no larger than this; field lines that find no room are sent in full.";

    /// WebTransport sessions that a connection may have at once, those that a handler has yet to accept included. More than one share what the connection may take.
    webtransport_sessions, with_webtransport_sessions: Count, 1, 1 => 1_000, Connection;
        memory |limits| limits.webtransport_sessions.saturating_mul(SESSION_BYTES + 2 * limits.webtransport_datagram_bytes);
        counter webtransport_sessions_refused;
        acts "The request is refused with H3_REQUEST_REJECTED.";

    /// Streams of each kind that a peer may have open in the WebTransport sessions of a connection, besides those of HTTP/3, once there is a session. Those that the application has yet to accept count. A client's bidirectional ones are bounded by `concurrent_streams` instead.
    webtransport_streams, with_webtransport_streams: Count, 100, 1 => 100_000, Connection;
        memory |limits| limits.webtransport_streams.saturating_mul(2 * STREAM_BYTES + 3 * SESSION_STREAM_BYTES);
        counter webtransport_streams_refused;
        acts "The peer is told. One that opens more breaks the protocol: the connection is closed with STREAM_LIMIT_ERROR.";

    /// Streams of a connection that may wait for their WebTransport session, and datagrams likewise.
    webtransport_early_streams, with_webtransport_early_streams: Count, 16, 1 => 65_536, Connection;
        memory |limits| limits.webtransport_early_streams.saturating_mul(2 * DATAGRAM_BYTES);
        counter webtransport_early_streams_refused;
        acts "The stream that has waited longest is refused with WEBTRANSPORT_BUFFERED_STREAM_REJECTED, or the oldest datagram dropped.";

    /// Bytes of datagrams of a WebTransport session that may wait for the application, and again for the network; each counts 64 bytes besides its content.
    webtransport_datagram_bytes, with_webtransport_datagram_bytes: Bytes, 64 * KIB, 4 * KIB => 64 * MIB, Connection;
        memory |limits| 2 * limits.webtransport_datagram_bytes;
        counter webtransport_datagrams_dropped;
        acts "The oldest datagrams are dropped.";

    /// How long the peer may take to end its side of a WebTransport session that was closed here.
    webtransport_close_timeout, with_webtransport_close_timeout: Time, 10 * SECOND, 100 => HOUR, Connection;
        memory |_| 0;
        counter webtransport_closes_timed_out;
        acts "The session's request is reset with H3_REQUEST_CANCELLED, and its place is free.";

    /// Tokens of earlier connections (NEW_TOKEN) whose use is remembered, so that none is taken twice.
    used_tokens, with_used_tokens: Count, 100_000, 0 => 100_000_000, Group;
        memory |limits| limits.used_tokens.saturating_mul(USED_TOKEN_BYTES);
        counter tokens_refused;
        acts "A token that was used, or is older than what is remembered, proves nothing: the client is treated as one without.";

    /// Sessions that clients may resume, with early data or without. Each handshake leaves up to two.
    sessions, with_sessions: Count, 100_000, 0 => 100_000_000, Group;
        memory |limits| limits.sessions.saturating_mul(LARGEST_SESSION_BYTES).min(limits.session_bytes);
        counter sessions_evicted;
        acts "The oldest is dropped; its client gets a full handshake.";

    /// Bytes of these sessions, with their names and places in the store.
    session_bytes, with_session_bytes: Bytes, 64 * MIB, 0 => 1 << 40, Group;
        memory |limits| limits.session_bytes;
        counter sessions_evicted_for_bytes;
        acts "The oldest are dropped; their clients get a full handshake.";

    /// How long a session may be resumed.
    session_lifetime, with_session_lifetime: Time, 24 * HOUR, 100 => 24 * HOUR, Group;
        memory |_| 0;
        counter sessions_expired;
        acts "The session is dropped when it is asked for or makes room; its client gets a full handshake.";

    /// Stateless resets sent, each smaller than the datagram that asked for it.
    stateless_resets_per_second, with_stateless_resets_per_second: PerSecond, 50, 1 => 1_000, Worker;
        memory |_| 0;
        counter stateless_resets_withheld;
        acts "No answer is sent.";

    /// Answers to datagrams of no connection that wait to be sent: version negotiation, Retry, refusals, stateless resets.
    waiting_answers, with_waiting_answers: Count, 256, 1 => 100_000, Worker;
        memory |limits| limits.waiting_answers.saturating_mul(DATAGRAM_BYTES);
        counter stateless_answers_dropped;
        acts "The answer is dropped; the client asks again.";

    /// Datagrams that wait for a worker because another one received them.
    waiting_strays, with_waiting_strays: Count, 4_096, 1 => 1_000_000, Worker;
        memory |limits| limits.waiting_strays.saturating_mul(DATAGRAM_BYTES);
        counter strays_dropped;
        acts "The datagram is dropped; QUIC repairs the loss.";
}
