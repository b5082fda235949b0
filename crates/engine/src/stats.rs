//! A worker's counters.

mod closes;
mod counter;
mod histogram;

pub(crate) use closes::CloseCode;
pub use closes::{Closer, Closes};
pub use counter::Counter;
pub use histogram::Histogram;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A worker's counters.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: Counter,)+
            /// Time from the first datagram of a QUIC connection to the end of its handshake.
            pub quic_handshake: Histogram,
            /// Time from the acceptance of a TCP connection to the end of its TLS handshake.
            pub tcp_handshake: Histogram,
            /// Estimated round-trip times of QUIC connections, sampled once a second while data is
            /// sent or received, and at the end.
            pub quic_rtt: Histogram,
            /// Time that the worker's turns took: how long a turn holds up all other connections.
            pub turns: Histogram,
            /// Closed QUIC connections, by side and code.
            pub quic_closes: Closes,
        }

        impl Stats {
            /// Returns names and values, in the order of declaration.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.value()),)+]
            }

            /// Returns names and descriptions, in the order of declaration.
            pub fn meanings() -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), [$($doc.trim()),+].join(" ")),)+]
            }
        }
    };
}

counters! {
    /// TCP connections accepted.
    tcp_accepted,
    /// TCP connections open now.
    tcp_open,
    /// Failed attempts to accept TCP connections, mostly for lack of file descriptors; each is
    /// retried after 100 ms.
    accepts_failed,
    /// TCP connections whose TLS handshake failed, including plaintext on a TLS port.
    tls_failed,
    /// TCP connections from load balancers closed because they did not begin with a valid PROXY
    /// protocol header.
    proxy_headers_refused,
    /// TCP connections closed by any timeout.
    tcp_timed_out,
    /// HTTP/1.1 and HTTP/2 connections that ended with a protocol error.
    tcp_protocol_errors,
    /// QUIC connections accepted.
    quic_accepted,
    /// QUIC connections refused because of the connection limit, shutdown or a malformed handshake.
    quic_refused,
    /// Retry packets sent to make QUIC clients validate their address, because many handshakes were
    /// open.
    quic_retries_sent,
    /// Handshakes that had to wait for a shared session or the signature of a slow key.
    handshakes_parked,
    /// QUIC handshakes that are waiting for such now.
    quic_handshakes_parked_now,
    /// TLS handshakes over TCP that are waiting for such now.
    tcp_handshakes_parked_now,
    /// Handshakes that were refused, sent a Retry or done without a lookup, because too many were
    /// waiting.
    parked_handshakes_refused,
    /// Handshakes refused because all threads for slow signatures were in use and too many waited
    /// for one.
    signing_threads_exhausted,
    /// Datagrams dropped because too many bytes waited for a QUIC handshake.
    parked_datagrams_dropped,
    /// QUIC connections that completed their handshake.
    quic_connected,
    /// QUIC connections open now, including those in their handshake.
    quic_open,
    /// Migrations of QUIC peers to another address or port.
    quic_migrations,
    /// QUIC connections that ended because the peer was silent.
    quic_timed_out,
    /// QUIC connections that ended with a transport or HTTP/3 error, on either side.
    quic_errors,
    /// Requests over HTTP/1.1.
    requests_http1,
    /// Requests over HTTP/2.
    requests_http2,
    /// Requests over HTTP/3.
    requests_http3,
    /// Requests that switched to another protocol, such as WebSocket.
    tunnels_opened,
    /// Such requests refused because too many tunnels were open.
    tunnels_refused,
    /// WebSocket connections closed because the peer violated the protocol.
    websocket_errors,
    /// WebSocket connections closed because a message was too large.
    websocket_messages_too_large,
    /// WebSocket connections closed because the peer did not answer a ping.
    websockets_timed_out,
    /// WebSocket connections closed because the peer did not answer a close.
    websocket_closes_timed_out,
    /// Times that a sender of WebSocket messages had to wait for the peer.
    websocket_senders_held_back,
    /// Requests open now, over all protocols: their response has not ended.
    requests_open,
    /// Tunnels open now, such as WebSocket connections.
    tunnels_open,
    /// Requests and tunnels aborted because they were still open when the grace period of a
    /// shutdown ended.
    requests_cut_off,
    /// Connections that the peer had lost, as its stateless reset showed.
    quic_resets_received,
    /// Packets sent on QUIC connections.
    quic_packets_sent,
    /// Packets sent on QUIC connections that were declared lost.
    quic_packets_lost,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames sent, because the QUIC peer's windows were full.
    quic_held_back_by_peer,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames received, because this side's windows were full
    /// for the QUIC peer.
    quic_peers_held_back,
    /// STREAMS_BLOCKED frames received, because the QUIC peer could open no more streams.
    quic_peers_out_of_streams,
    /// Handshakes completed with TLS 1.2.
    tls_1_2,
    /// Handshakes completed with TLS 1.3, over TCP and QUIC.
    tls_1_3,
    /// Handshakes that negotiated AES-128-GCM.
    tls_aes_128_gcm,
    /// Handshakes that negotiated AES-256-GCM.
    tls_aes_256_gcm,
    /// Handshakes that negotiated ChaCha20-Poly1305.
    tls_chacha20_poly1305,
    /// Handshakes that negotiated the X25519MLKEM768 key exchange, which is post-quantum.
    tls_x25519mlkem768,
    /// Handshakes that negotiated the X25519 key exchange.
    tls_x25519,
    /// Handshakes that negotiated the secp256r1 key exchange.
    tls_secp256r1,
    /// Handshakes that negotiated the secp384r1 key exchange.
    tls_secp384r1,
    /// Handshakes that negotiated another key exchange group.
    tls_other_group,
    /// TCP connections that resumed a session.
    tcp_resumed,
    /// QUIC connections that resumed a session.
    quic_resumed,
    /// Connections whose early data (0-RTT) was accepted.
    early_data_accepted,
    /// Connections whose early data was refused because early data is off.
    early_data_refused_off,
    /// Connections whose early data was refused because the session is unknown: already used,
    /// evicted, expired or forged.
    early_data_refused_no_session,
    /// Connections whose early data was refused although the session was resumed: the ticket age is
    /// wrong, or another protocol was negotiated.
    early_data_refused_stale,
    /// Sessions stored for resumption.
    sessions_stored,
    /// Sessions resumed from the store.
    sessions_taken,
    /// Lookups of unknown sessions: already used, evicted, expired or forged.
    sessions_unknown,
    /// Sessions dropped because they were too old.
    sessions_expired,
    /// Sessions evicted, or not stored, because there were too many.
    sessions_evicted,
    /// Sessions evicted, or not stored, because they had too many bytes.
    sessions_evicted_for_bytes,
    /// Requests in early data that were answered, other than with 425.
    requests_early,
    /// Requests in early data that were answered 425 (Too Early).
    requests_too_early,
    /// Requests in early data that had to wait for the end of the handshake.
    requests_held,
    /// Requests and responses over HTTP/3 that had to wait for the peer's QPACK encoder.
    qpack_streams_blocked,
    /// Requests whose exchange ended before the response was sent completely.
    requests_aborted,
    /// Requests refused as malformed or too large before a handler saw them.
    requests_refused,
    /// Connections refused because the connection limit was reached.
    connections_refused,
    /// Connections refused because their client address had too many open.
    connections_refused_per_client,
    /// Connections refused because memory was short.
    connections_refused_for_memory,
    /// Requests answered 503 because memory was short.
    requests_refused_for_memory,
    /// Handshakes that timed out, over QUIC and TCP.
    handshakes_timed_out,
    /// Connections closed because they were idle, over QUIC and TCP.
    idle_timeouts,
    /// Requests whose head timed out.
    head_timeouts,
    /// Requests whose body timed out.
    body_timeouts,
    /// Requests whose body was too slow.
    bodies_too_slow,
    /// Requests whose body was too large.
    bodies_too_large,
    /// Responses that timed out because the peer accepted no data.
    response_timeouts,
    /// Responses that the peer accepted too slowly.
    responses_too_slow,
    /// HTTP/2 requests refused, and HTTP/3 connections closed, because too many requests were open
    /// at once.
    streams_refused,
    /// Requests refused because the worker had too many open.
    requests_shed,
    /// HTTP/3 requests refused because too many heads were incomplete.
    partial_heads_refused,
    /// Requests whose head had too many bytes.
    heads_too_large,
    /// Requests whose head had too many field lines.
    heads_too_many_lines,
    /// HTTP/2 streams reset for data beyond their window.
    stream_window_overruns,
    /// Connections closed for data beyond a window.
    connection_window_overruns,
    /// Times that a response had to wait for send window.
    send_window_waits,
    /// Receive windows reduced because the window budget ran low, counted at each attempt.
    windows_reduced,
    /// HTTP/2 requests reset because too much of their body came after the response.
    linger_overruns,
    /// HTTP/2 requests reset because their body did not end in time after the response.
    linger_timeouts,
    /// Times that a receive window grew to match its path.
    windows_grown,
    /// Times that a receive window was shrunk because memory was short.
    windows_shrunk,
    /// Times that a connection's send window was reduced because the send budget ran low.
    send_windows_reduced,
    /// HTTP/2 connections closed because the peer reset too many requests.
    reset_floods,
    /// HTTP/2 connections closed because the peer reset too many requests before they reached a
    /// handler.
    reset_floods_before_accept,
    /// HTTP/2 connections closed because of too many stream errors by the peer.
    stream_error_floods,
    /// HTTP/2 connections closed for too many frames without payload data.
    control_frame_floods,
    /// HTTP/2 connections closed for a head in too many frames.
    continuation_floods,
    /// HTTP/3 connections closed for too many useless frames.
    useless_frame_floods,
    /// HTTP/3 connections closed for too many useless bytes.
    useless_byte_floods,
    /// HTTP/3 connections closed for too many streams of unknown type.
    unknown_stream_floods,
    /// HTTP/3 connections closed for too many frames on the control stream.
    control_stream_floods,
    /// HTTP/3 connections closed because the peer cancelled too many requests, or violated rules in
    /// too many.
    aborted_request_floods,
    /// HTTP/3 connections closed for a SETTINGS or PRIORITY_UPDATE frame that was too large.
    oversized_frames,
    /// HTTP/3 connections closed because the peer did not accept the QPACK decoder's instructions.
    decoder_backlogs,
    /// HTTP/3 connections closed for too much data on streams that wait for the header table.
    blocked_stream_overruns,
    /// HTTP/3 connections closed because the peer made the header table too large.
    qpack_tables_exceeded,
    /// HTTP/3 connections closed because too many heads waited for the header table.
    qpack_blocked_streams_exceeded,
    /// HTTP/3 connections whose peer offers a larger header table than this side uses.
    qpack_tables_reduced,
    /// HTTP/3 connections closed because the peer opened too many unidirectional streams.
    uni_streams_refused,
    /// QUIC clients whose address was validated by a token of an earlier connection.
    tokens_accepted,
    /// Tokens of earlier connections that were not accepted, because they were used or too old.
    tokens_refused,
    /// Times that datagrams were withheld, because they would have exceeded three times the bytes
    /// received from an address that is not validated.
    amplification_withheld,
    /// Stateless resets sent.
    stateless_resets_sent,
    /// Stateless resets withheld, because there were too many in a second.
    stateless_resets_withheld,
    /// Panics of handlers, other application code and the engine itself. The affected request was
    /// answered 500 or reset; outside of requests, the affected connection was closed.
    handler_panics,
    /// Responses whose `content-length` was invalid or did not match the handler's body.
    content_lengths_corrected,
    /// Interim responses not sent because a request had too many.
    interim_responses_dropped,
    /// PRIORITY_UPDATE frames that changed the send order.
    priority_updates,
    /// PRIORITY_UPDATE frames dropped because too many waited for their requests.
    priority_updates_dropped,
    /// WebTransport sessions accepted.
    webtransport_sessions,
    /// Requests for a WebTransport session refused because their connection had too many.
    webtransport_sessions_refused,
    /// HTTP/3 connections closed because the peer opened too many unidirectional streams once it
    /// had a WebTransport session.
    webtransport_streams_refused,
    /// Streams refused because too many waited for their WebTransport session.
    webtransport_early_streams_refused,
    /// Datagrams of WebTransport sessions dropped because too many waited: for their session, for
    /// the application or for the network.
    webtransport_datagrams_dropped,
    /// WebTransport sessions closed locally whose peer did not end its side in time.
    webtransport_closes_timed_out,
    /// Datagrams received.
    datagrams_received,
    /// Datagrams sent.
    datagrams_sent,
    /// Datagrams ignored because they belong to no connection and get no reply: random bytes,
    /// truncated packets.
    datagrams_ignored,
    /// Datagrams that could not be sent; QUIC retransmits their content.
    datagrams_unsent,
    /// Version Negotiation packets sent.
    version_negotiations_sent,
    /// Stateless resets, refusals and Retry packets sent, in total.
    stateless_answers_sent,
    /// Replies to datagrams of no connection dropped because too many were queued.
    stateless_answers_dropped,
    /// Datagrams forwarded to the worker that their connection ID names.
    strays_passed_on,
    /// Datagrams for another worker dropped because its mailbox was full.
    strays_dropped,
}
