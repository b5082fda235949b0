//! The table of limits.

use std::time::Duration;

use super::{
    BLOCKED_STREAM_BYTES, CONNECTION_BYTES, DATAGRAM_BYTES, EXCHANGE_BYTES, HANDSHAKE_BYTES,
    LARGEST_SESSION_BYTES, Limit, LimitError, SESSION_BYTES, SESSION_STREAM_BYTES,
    SIGNING_THREAD_BYTES, STREAM_BYTES, Scope, USED_TOKEN_BYTES, Unit, milliseconds,
};

/// Maps a limit's unit to its Rust type, and converts between that type and the table's number.
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
        $(#[doc = $what:literal])+
        $name:ident, $setter:ident: $unit:ident, $default:expr, $min:expr => $max:expr, $scope:ident;
            memory $memory:expr;
            counter $counter:ident;
            acts $acts:literal;
    )+) => {
        /// Limits on what peers may use: connections, memory, time. The defaults are safe on the
        /// open internet.
        ///
        /// [`Limits::table`] describes each limit; `docs/limits.md` is generated from it.
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
                what: concat!($($what),+).trim_ascii(),
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
            /// Returns all limits, in the order of the documentation.
            pub fn table() -> &'static [Limit] {
                TABLE
            }

            $(
                $(#[doc = $what])+
                pub fn $name(&self) -> typed!(type $unit) {
                    typed!(from $unit, self.$name)
                }

                #[doc = concat!("Returns these limits with another [`Limits::", stringify!($name), "`].")]
                ///
                /// # Errors
                ///
                /// Returns an error if the value is out of the range in the table.
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
    /// Memory that all connections and requests may use together, with what is buffered for them;
    /// 0 for nine tenths of what the control group allows, or three quarters of the machine's
    /// memory.
    memory, with_memory: Bytes, 0, 0 => 1 << 50, Group;
        memory |limits| limits.memory;
        counter requests_refused_for_memory;
        acts "In steps, as more of it is used. From 40 %, new connections get small windows; from \
            55 %, no window grows on unread data; from 70 %, windows shrink; from 85 %, new \
            connections are refused; from 92 %, new requests are answered 503 with `retry-after: \
            1`. Each step ends 10 points below its beginning.";

    /// Maximum number of open connections, TCP and QUIC together.
    connections, with_connections: Count, 100_000, 1 => 100_000_000, Group;
        memory |limits| limits.connections.saturating_mul(CONNECTION_BYTES);
        counter connections_refused;
        acts "New connections are refused: over QUIC with CONNECTION_REFUSED, over TCP by closing. \
            From three quarters of the limit on, QUIC clients must validate their address first \
            (Retry).";

    /// Maximum number of open connections from one client address (an IPv4 address or the /64 of an
    /// IPv6 address), TCP and QUIC together.
    connections_per_client, with_connections_per_client: Count, 2_048, 1 => 100_000_000, Client;
        memory |limits| limits.connections_per_client.saturating_mul(CONNECTION_BYTES);
        counter connections_refused_per_client;
        acts "New connections are refused. From half of the limit on, QUIC clients must \
            validate their address first (Retry), so that forged packets cannot use up an honest \
            client's share.";

    /// Maximum number of QUIC handshakes in progress.
    open_handshakes, with_open_handshakes: Count, 1_000, 0 => 10_000_000, Worker;
        memory |limits| limits.open_handshakes.saturating_mul(HANDSHAKE_BYTES);
        counter quic_retries_sent;
        acts "New clients must validate their address first (Retry). This costs them a round trip \
            and stops clients with forged addresses. A token of an earlier connection also \
            validates the address.";

    /// Maximum number of handshakes that wait for a shared session or the signature of a slow key,
    /// over QUIC and TCP each.
    parked_handshakes, with_parked_handshakes: Count, 1_000, 0 => 1_000_000, Worker;
        memory |limits| limits
            .parked_handshakes
            .saturating_mul(limits.parked_handshake_bytes.saturating_add(2 * HANDSHAKE_BYTES));
        counter parked_handshakes_refused;
        acts "Handshakes that would wait for a session are done in full instead, those that need a \
            slow signature are refused. From half of the limit on, QUIC clients must validate their \
            address first (Retry).";

    /// Maximum bytes of datagrams that are buffered for a QUIC handshake that waits, early data for
    /// the most part.
    parked_handshake_bytes, with_parked_handshake_bytes: Bytes, 64 << 10, 4 << 10 => 10 << 20,
        Connection;
        memory |limits| limits.parked_handshake_bytes;
        counter parked_datagrams_dropped;
        acts "Further datagrams are dropped, which the client sends again.";

    /// Maximum number of threads that run handshakes with slow keys.
    signing_threads, with_signing_threads: Count, 128, 1 => 4_096, Group;
        memory |limits| limits.signing_threads.saturating_mul(SIGNING_THREAD_BYTES);
        counter signing_threads_exhausted;
        acts "Further handshakes wait, at most `parked_handshakes`.";

    /// Maximum time for a connection's handshake, QUIC or TLS over TCP.
    handshake_timeout, with_handshake_timeout: Time, 10 * SECOND, 100 => HOUR, Connection;
        memory |_| 0;
        counter handshakes_timed_out;
        acts "The connection is closed.";

    /// Maximum time that a connection may be idle while no handler is running for it.
    idle_timeout, with_idle_timeout: Time, 30 * SECOND, 100 => HOUR, Connection;
        memory |_| 0;
        counter idle_timeouts;
        acts "The connection is closed; over HTTP/2 after a GOAWAY.";

    /// Maximum time from the first byte of a request head to its last.
    head_timeout, with_head_timeout: Time, 10 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter head_timeouts;
        acts "Over HTTP/3 the stream is reset, over HTTP/1.1 and HTTP/2 the connection is closed.";

    /// Maximum time that a handler waits for the next byte of a request body.
    body_timeout, with_body_timeout: Time, 20 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter body_timeouts;
        acts "The body ends with an error and the request is answered 408. While a response is \
            being sent, the body may pause for as long as the connection may be idle; once the \
            response is complete, a handler that is still reading waits no longer than this.";

    /// Minimum rate of a request body while a handler waits for it, averaged over the time waited;
    /// checked once that is more than `body_timeout`.
    body_bytes_per_second, with_body_bytes_per_second: BytesPerSecond, 240, 0 => GIB, Request;
        memory |_| 0;
        counter bodies_too_slow;
        acts "The body ends with an error and the request is answered 408.";

    /// Maximum size of a request body.
    request_body_bytes, with_request_body_bytes: Bytes, GIB, 0 => 1 << 62, Request;
        memory |_| 0;
        counter bodies_too_large;
        acts "The request is answered 413: at once if `content-length` exceeds the limit, \
            otherwise when the limit is passed. No memory is allocated for it, since the body is \
            read only as the handler reads.";

    /// Maximum time that the peer accepts no byte of a response that is ready to send. Time spent
    /// waiting for other streams of the connection does not count. For HTTP/2 and HTTP/3 clients:
    /// maximum time without progress of a request body after the server's response is complete.
    response_timeout, with_response_timeout: Time, 30 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter response_timeouts;
        acts "Over HTTP/2 and HTTP/3 the stream is reset, over HTTP/1.1 the connection is closed.";

    /// Minimum rate at which the peer accepts a response that is ready to send, averaged over each
    /// `response_timeout`; for clients, of a request body after its response is complete.
    response_bytes_per_second, with_response_bytes_per_second: BytesPerSecond, 240, 0 => GIB, Request;
        memory |_| 0;
        counter responses_too_slow;
        acts "Same as `response_timeout`.";

    /// Maximum number of open requests on a connection.
    concurrent_streams, with_concurrent_streams: Count, 256, 1 => 100_000, Connection;
        memory |limits| limits.concurrent_streams.saturating_mul(STREAM_BYTES);
        counter streams_refused;
        acts "Over HTTP/2 the stream is reset with REFUSED_STREAM; over HTTP/3 the connection is \
            closed with STREAM_LIMIT_ERROR. An HTTP/3 client starts with 100, and gets half more \
            each time it uses three quarters of its allowance. The memory shown is what is \
            retained for later requests; memory of open requests is bounded by `open_requests`.";

    /// Maximum number of open requests of a worker, on all of its connections.
    open_requests, with_open_requests: Count, 10_000, 1 => 10_000_000, Worker;
        memory |limits| limits.open_requests.saturating_mul(limits.field_section_bytes + EXCHANGE_BYTES);
        counter requests_shed;
        acts "The request is answered 503 with `retry-after: 1`.";

    /// Maximum number of open tunnels of a worker: requests that switched to another protocol
    /// (WebSocket, extended CONNECT). They do not count as `open_requests`.
    open_tunnels, with_open_tunnels: Count, 20_000, 0 => 10_000_000, Worker;
        memory |limits| limits.open_tunnels.saturating_mul(EXCHANGE_BYTES);
        counter tunnels_refused;
        acts "The request is answered 503 with `retry-after: 1`.";

    /// Maximum size of a received WebSocket message, decompressed.
    websocket_message_bytes, with_websocket_message_bytes: Bytes, MIB, 125 => 1 << 40, Request;
        memory |limits| 2 * limits.websocket_message_bytes;
        counter websocket_messages_too_large;
        acts "The connection is closed with 1009. Memory is allocated only for data that has \
            arrived.";

    /// Maximum WebSocket data buffered for the peer before the sender has to wait.
    websocket_backlog_bytes, with_websocket_backlog_bytes: Bytes, 64 * KIB, 1 => 1 << 40, Request;
        memory |limits| limits.websocket_backlog_bytes;
        counter websocket_senders_held_back;
        acts "The sender waits. A handler that sends without waiting can read the buffered \
            amount.";

    /// Maximum time that a WebSocket peer may be silent. A ping is sent after half of it.
    websocket_timeout, with_websocket_timeout: Time, 120 * SECOND, 100 => 24 * HOUR, Request;
        memory |_| 0;
        counter websockets_timed_out;
        acts "The stream is reset; over HTTP/1.1 the connection is closed.";

    /// Maximum time for a WebSocket peer to answer a close frame.
    websocket_close_timeout, with_websocket_close_timeout: Time, 10 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter websocket_closes_timed_out;
        acts "Same as `websocket_timeout`.";

    /// Maximum number of HTTP/3 heads of a worker that are received in part or wait for the header
    /// table.
    partial_heads, with_partial_heads: Count, 4_096, 1 => 10_000_000, Worker;
        memory |limits| limits.partial_heads.saturating_mul(limits.field_section_bytes);
        counter partial_heads_refused;
        acts "The stream is reset with H3_REQUEST_REJECTED, which lets the client retry.";

    /// Maximum size of a request head, counted as in RFC 9114, section 4.2.2; over HTTP/1.1, bytes
    /// on the wire. For clients and upstreams: maximum size of a response head.
    field_section_bytes, with_field_section_bytes: Bytes, 64 * KIB, KIB => 16 * MIB, Request;
        memory |limits| 2 * limits.field_section_bytes;
        counter heads_too_large;
        acts "The request is answered 431. A larger response head is an upstream error: the \
            gateway answers 502.";

    /// Maximum number of field lines in a request head, and in a server's response head over
    /// HTTP/1.1 and HTTP/3.
    field_lines, with_field_lines: Count, 200, 1 => 10_000, Request;
        memory |_| 0;
        counter heads_too_many_lines;
        acts "The request is answered 431. Their memory is bounded by `field_section_bytes`.";

    /// Maximum number of bytes that a peer may send on a stream before they are read. Above 3 MiB,
    /// a burst of losses can leave more gaps in a stream than the QUIC library accepts; it then
    /// closes the connection.
    stream_window_bytes, with_stream_window_bytes: Bytes, 3 * MIB, KIB => GIB, Request;
        memory |limits| limits.stream_window_bytes.min(limits.connection_window_bytes);
        counter stream_window_overruns;
        acts "Sending more violates the protocol: over HTTP/2 the stream is reset with \
            FLOW_CONTROL_ERROR; over HTTP/3 the connection is closed and counted as \
            `connection_window_overruns`.";

    /// Initial maximum number of bytes that a peer may send on all streams of a connection before
    /// they are read.
    first_window_bytes, with_first_window_bytes: Bytes, MIB, KIB => GIB, Connection;
        memory |limits| limits.first_window_bytes.min(limits.connection_window_bytes);
        counter windows_grown;
        acts "The window doubles, up to `connection_window_bytes`, when the peer sends half of it \
            within two round trips or, over HTTP/3, when half of it waits to be read.";

    /// Maximum number of bytes that a peer may send on all streams of a connection before they are
    /// read, once its path has proved fast enough.
    connection_window_bytes, with_connection_window_bytes: Bytes, 16 * MIB, KIB => GIB, Connection;
        memory |limits| limits.connection_window_bytes;
        counter connection_window_overruns;
        acts "Sending more violates the protocol: the connection is closed with \
            FLOW_CONTROL_ERROR.";

    /// Maximum number of bytes of a connection that are sent but not acknowledged, or queued in the
    /// transport. Each stream also holds the next chunk of its body.
    send_window_bytes, with_send_window_bytes: Bytes, 16 * MIB, KIB => GIB, Connection;
        memory |limits| limits.send_window_bytes;
        counter send_window_waits;
        acts "The producer of the body waits.";

    /// Maximum number of bytes that a worker's connections may buffer for sending, beyond a free
    /// allowance per connection: 256 KiB over QUIC and, including the kernel's buffer, over TCP; 32
    /// KiB over HTTP/2.
    send_budget_bytes, with_send_budget_bytes: Bytes, GIB, MIB => 1 << 50, Worker;
        memory |limits| limits.send_budget_bytes;
        counter send_windows_reduced;
        acts "Connections buffer less, each a 64th of the remaining budget, and may send slower \
            than their path allows: over QUIC less than twice their congestion window, over TCP no \
            more than the kernel already buffers.";

    /// Maximum receive-window bytes granted to all connections of a worker.
    window_budget_bytes, with_window_budget_bytes: Bytes, 4 * GIB, MIB => 1 << 50, Worker;
        memory |limits| limits.window_budget_bytes;
        counter windows_reduced;
        acts "New connections get smaller windows (a 64th of the remaining budget, at least 64 \
            KiB), and larger windows do not grow. A quarter of `memory`, divided by the number of \
            workers, is a limit as well.";

    /// Maximum number of bytes of an HTTP/2 request that are received and discarded after an early
    /// response, beyond those that the stream's window let the client send before it could see the
    /// response.
    linger_bytes, with_linger_bytes: Bytes, 64 * KIB, 0 => GIB, Request;
        memory |_| 0;
        counter linger_overruns;
        acts "The stream is reset with NO_ERROR.";

    /// Maximum time to wait for the rest of such a request.
    linger_timeout, with_linger_timeout: Time, 5 * SECOND, 100 => HOUR, Request;
        memory |_| 0;
        counter linger_timeouts;
        acts "The stream is reset with NO_ERROR.";

    /// Maximum number of interim responses, such as 103 (Early Hints), that a handler may send per
    /// request. Each is buffered until the client accepts it.
    interim_responses, with_interim_responses: Count, 16, 0 => 1_000, Request;
        memory |_| 0;
        counter interim_responses_dropped;
        acts "The interim response is not sent. The memory of the others is the handler's \
            responsibility.";

    /// Maximum number of HTTP/2 requests that the peer may reset per second, after a burst of five
    /// times as many.
    resets_per_second, with_resets_per_second: PerSecond, 100, 1 => 1_000_000, Connection;
        memory |_| 0;
        counter reset_floods;
        acts "The connection is closed with ENHANCE_YOUR_CALM. Requests reset before they reached \
            a handler are also bounded by `resets_before_accept`.";

    /// Maximum number of HTTP/2 requests that the peer reset before they reached a handler and that
    /// are not yet dropped.
    resets_before_accept, with_resets_before_accept: Count, 20, 1 => 100_000, Connection;
        memory |_| 0;
        counter reset_floods_before_accept;
        acts "The connection is closed with ENHANCE_YOUR_CALM.";

    /// Maximum number of HTTP/2 streams reset by this side because of the peer's errors, over a
    /// connection's lifetime.
    stream_errors, with_stream_errors: Count, 1_024, 1 => 100_000, Connection;
        memory |_| 0;
        counter stream_error_floods;
        acts "The connection is closed with ENHANCE_YOUR_CALM.";

    /// Maximum number of HTTP/2 frames without payload data per second, after a burst of five times
    /// as many: SETTINGS, PING, PRIORITY, repeated RST_STREAM, unknown and empty frames, and tiny
    /// window updates. Every 4 KiB of body in either direction allows one more.
    control_frames_per_second, with_control_frames_per_second: PerSecond, 1_000, 10 => 1_000_000, Connection;
        memory |_| 0;
        counter control_frame_floods;
        acts "The connection is closed.";

    /// Maximum number of frames of one HTTP/2 head: HEADERS and its CONTINUATIONs. As many as
    /// `field_section_bytes` needs are always accepted.
    continuation_frames, with_continuation_frames: Count, 6, 1 => 1_000, Request;
        memory |_| 0;
        counter continuation_floods;
        acts "The connection is closed.";

    /// Maximum excess of unknown frames and empty DATA frames over useful frames on an HTTP/3
    /// connection.
    useless_frames, with_useless_frames: Count, 1_000, 16 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter useless_frame_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// Maximum excess of bytes in unknown frames and streams over useful bytes on an HTTP/3
    /// connection.
    useless_bytes, with_useless_bytes: Bytes, MIB, 4 * KIB => GIB, Connection;
        memory |_| 0;
        counter useless_byte_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// Maximum excess of unidirectional streams of unknown type over requests on an HTTP/3
    /// connection.
    unknown_streams, with_unknown_streams: Count, 100, 8 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter unknown_stream_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// Maximum excess of frames on the HTTP/3 control stream over four per request.
    control_stream_frames, with_control_stream_frames: Count, 1_000, 16 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter control_stream_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// Maximum excess of HTTP/3 requests that the peer cancels before the response is sent, or that
    /// violate a rule, over requests that ended normally.
    aborted_requests, with_aborted_requests: Count, 500, 1 => 0xffff_ffff, Connection;
        memory |_| 0;
        counter aborted_request_floods;
        acts "The connection is closed with H3_EXCESSIVE_LOAD.";

    /// Maximum number of unidirectional streams that a peer may open over HTTP/3: the control
    /// stream, two QPACK streams and some of reserved types.
    uni_streams, with_uni_streams: Count, 8, 3 => 1_000, Connection;
        memory |limits| limits.uni_streams.saturating_mul(limits.stream_window_bytes).min(limits.connection_window_bytes);
        counter uni_streams_refused;
        acts "The connection is closed with STREAM_LIMIT_ERROR.";

    /// Maximum size of the header table (QPACK) that a peer may fill over HTTP/3, counted as in RFC
    /// 9204, section 3.2.1. It uses at most twice as much memory.
    qpack_table_bytes, with_qpack_table_bytes: Bytes, 4 * KIB, 0 => MIB, Connection;
        memory |limits| 2 * limits.qpack_table_bytes;
        counter qpack_tables_exceeded;
        acts "The limit is announced to the peer. Exceeding it violates the protocol: the \
            connection is closed with QPACK_ENCODER_STREAM_ERROR.";

    /// Maximum number of HTTP/3 heads that may wait for the header table. Each may buffer 64 KiB of
    /// data received with it; those of a worker are also bounded by `partial_heads`.
    qpack_blocked_streams, with_qpack_blocked_streams: Count, 16, 0 => 1_024, Connection;
        memory |limits| limits.qpack_blocked_streams.saturating_mul(limits.field_section_bytes + BLOCKED_STREAM_BYTES);
        counter qpack_blocked_streams_exceeded;
        acts "The limit is announced to the peer. Exceeding it violates the protocol: the \
            connection is closed with QPACK_DECOMPRESSION_FAILED.";

    /// Maximum number of bytes used of the header table that an HTTP/3 peer offers. They use at
    /// most three times as much memory.
    qpack_encoder_table_bytes, with_qpack_encoder_table_bytes: Bytes, 4 * KIB, 0 => MIB, Connection;
        memory |limits| 3 * limits.qpack_encoder_table_bytes;
        counter qpack_tables_reduced;
        acts "The table is limited to this size; field lines that do not fit are sent in full.";

    /// Maximum number of WebTransport sessions on a connection, including those that a handler has
    /// yet to accept. Sessions share the connection's limits.
    webtransport_sessions, with_webtransport_sessions: Count, 1, 1 => 1_000, Connection;
        memory |limits| limits.webtransport_sessions.saturating_mul(SESSION_BYTES + 2 * limits.webtransport_datagram_bytes);
        counter webtransport_sessions_refused;
        acts "The request is refused with H3_REQUEST_REJECTED.";

    /// Maximum number of streams of each kind that a peer may have open in a connection's
    /// WebTransport sessions, in addition to those of HTTP/3, once there is a session. Streams that
    /// the application has yet to accept count. A client's bidirectional streams are bounded by
    /// `concurrent_streams` instead.
    webtransport_streams, with_webtransport_streams: Count, 100, 1 => 100_000, Connection;
        memory |limits| limits.webtransport_streams.saturating_mul(2 * STREAM_BYTES + 3 * SESSION_STREAM_BYTES);
        counter webtransport_streams_refused;
        acts "The limit is announced to the peer. Exceeding it violates the protocol: the \
            connection is closed with STREAM_LIMIT_ERROR.";

    /// Maximum number of a connection's streams that may wait for their WebTransport session; the
    /// same number of datagrams may wait.
    webtransport_early_streams, with_webtransport_early_streams: Count, 16, 1 => 65_536, Connection;
        memory |limits| limits.webtransport_early_streams.saturating_mul(2 * DATAGRAM_BYTES);
        counter webtransport_early_streams_refused;
        acts "The stream that has waited longest is refused with \
            WEBTRANSPORT_BUFFERED_STREAM_REJECTED, or the oldest datagram is dropped.";

    /// Maximum bytes of a WebTransport session's datagrams queued for the application, and the same
    /// again for the network. Each datagram counts 64 bytes besides its payload.
    webtransport_datagram_bytes, with_webtransport_datagram_bytes: Bytes, 64 * KIB, 4 * KIB => 64 * MIB, Connection;
        memory |limits| 2 * limits.webtransport_datagram_bytes;
        counter webtransport_datagrams_dropped;
        acts "The oldest datagrams are dropped.";

    /// Maximum time for the peer to end its side of a WebTransport session that was closed locally.
    webtransport_close_timeout, with_webtransport_close_timeout: Time, 10 * SECOND, 100 => HOUR, Connection;
        memory |_| 0;
        counter webtransport_closes_timed_out;
        acts "The session's request is reset with H3_REQUEST_CANCELLED, and its slot is freed.";

    /// Number of used tokens of earlier connections (NEW_TOKEN) to remember, so that no token is
    /// accepted twice.
    used_tokens, with_used_tokens: Count, 100_000, 0 => 100_000_000, Group;
        memory |limits| limits.used_tokens.saturating_mul(USED_TOKEN_BYTES);
        counter tokens_refused;
        acts "A token that was used, or is older than those remembered, is not accepted: the \
            client is treated as if it had sent none.";

    /// Maximum number of stored sessions that clients may resume, with or without early data. Each
    /// handshake stores up to two.
    sessions, with_sessions: Count, 100_000, 0 => 100_000_000, Group;
        memory |limits| limits.sessions.saturating_mul(LARGEST_SESSION_BYTES).min(limits.session_bytes);
        counter sessions_evicted;
        acts "The oldest is dropped; its client gets a full handshake.";

    /// Maximum size of these sessions, with their names and store entries.
    session_bytes, with_session_bytes: Bytes, 64 * MIB, 0 => 1 << 40, Group;
        memory |limits| limits.session_bytes;
        counter sessions_evicted_for_bytes;
        acts "The oldest are dropped; their clients get a full handshake.";

    /// Maximum time that a session can be resumed.
    session_lifetime, with_session_lifetime: Time, 24 * HOUR, 100 => 24 * HOUR, Group;
        memory |_| 0;
        counter sessions_expired;
        acts "The session is dropped when it is requested or evicted; its client gets a full \
            handshake.";

    /// Maximum number of stateless resets sent per second, each smaller than the datagram that
    /// caused it.
    stateless_resets_per_second, with_stateless_resets_per_second: PerSecond, 50, 1 => 1_000, Worker;
        memory |_| 0;
        counter stateless_resets_withheld;
        acts "No stateless reset is sent.";

    /// Maximum number of queued replies to datagrams that belong to no connection: version
    /// negotiation, Retry, refusals, stateless resets.
    waiting_answers, with_waiting_answers: Count, 256, 1 => 100_000, Worker;
        memory |limits| limits.waiting_answers.saturating_mul(DATAGRAM_BYTES);
        counter stateless_answers_dropped;
        acts "The reply is dropped; the client retransmits.";

    /// Maximum number of queued datagrams that another worker received for this one.
    waiting_strays, with_waiting_strays: Count, 4_096, 1 => 1_000_000, Worker;
        memory |limits| limits.waiting_strays.saturating_mul(DATAGRAM_BYTES);
        counter strays_dropped;
        acts "The datagram is dropped; QUIC repairs the loss.";
}
