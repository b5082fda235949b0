//! Counters of a worker.

mod closes;
mod histogram;

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use closes::CloseCode;
pub use closes::{Closer, Closes};
pub use histogram::Histogram;

/// A number that its worker alone changes and any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // One writer: a plain add, without the cost of a locked instruction.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(count), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The present value.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: Counter,)+
            /// From the first datagram of a QUIC connection to the end of its handshake.
            pub quic_handshake: Histogram,
            /// From a TCP connection's acceptance to the end of its TLS handshake.
            pub tcp_handshake: Histogram,
            /// Round-trip times of QUIC connections as they were estimated, once a second while anything is sent or received, and at the end.
            pub quic_rtt: Histogram,
            /// How QUIC connections were closed.
            pub quic_closes: Closes,
        }

        impl Stats {
            /// Names and values, in the order of declaration.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.value()),)+]
            }

            /// Names and what they count, in the order of declaration.
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
    /// Times that waiting TCP connections could not be accepted, mostly for want of descriptors; each is tried again after 100 ms.
    accepts_failed,
    /// TCP connections whose TLS handshake failed, clear text on a TLS port included.
    tls_failed,
    /// TCP connections of balancers closed because they did not begin with a PROXY protocol header that can be read.
    proxy_headers_refused,
    /// TCP connections closed because the peer left them waiting, for whatever reason.
    tcp_timed_out,
    /// HTTP/1.1 and HTTP/2 connections that ended with a protocol error.
    tcp_protocol_errors,
    /// QUIC connections accepted.
    quic_accepted,
    /// QUIC connections refused, because there are too many, the worker ends or the handshake was malformed.
    quic_refused,
    /// QUIC clients asked to prove their address (Retry), because many handshakes were open.
    quic_retries_sent,
    /// QUIC connections whose handshake was completed.
    quic_connected,
    /// QUIC connections open now, those in their handshake included.
    quic_open,
    /// Times that the peer of a QUIC connection went on from another address or port.
    quic_migrations,
    /// QUIC connections that ended because nothing was heard from the peer.
    quic_timed_out,
    /// QUIC connections that ended with an error of the transport or of HTTP/3, on either side.
    quic_errors,
    /// Requests over HTTP/1.1.
    requests_http1,
    /// Requests over HTTP/2.
    requests_http2,
    /// Requests over HTTP/3.
    requests_http3,
    /// Requests that went on in another protocol, such as WebSocket.
    tunnels_opened,
    /// Such requests refused, because as many were open as may be.
    tunnels_refused,
    /// WebSocket connections closed because the peer broke the protocol.
    websocket_errors,
    /// WebSocket connections closed because a message was too large.
    websocket_messages_too_large,
    /// WebSocket connections given up because the peer did not answer.
    websockets_timed_out,
    /// WebSocket connections given up because the peer did not answer a close.
    websocket_closes_timed_out,
    /// Times that the sender of WebSocket messages had to wait for the peer.
    websocket_senders_held_back,
    /// Requests open now, over all protocols: those whose response has not ended.
    requests_open,
    /// Tunnels open now: what such requests became.
    tunnels_open,
    /// Requests and tunnels that were open when the time for a graceful shutdown was over, and were cut off.
    requests_cut_off,
    /// Connections whose peer was found to have lost them (stateless reset).
    quic_resets_received,
    /// Packets sent on QUIC connections.
    quic_packets_sent,
    /// Packets sent on QUIC connections that were declared lost.
    quic_packets_lost,
    /// Times that a QUIC peer was told that its windows hold back what is sent to it (DATA_BLOCKED, STREAM_DATA_BLOCKED).
    quic_held_back_by_peer,
    /// Times that a QUIC peer said that our windows hold back what it sends (DATA_BLOCKED, STREAM_DATA_BLOCKED).
    quic_peers_held_back,
    /// Times that a QUIC peer said that it may open no more streams (STREAMS_BLOCKED).
    quic_peers_out_of_streams,
    /// Handshakes completed with TLS 1.2.
    tls_1_2,
    /// Handshakes completed with TLS 1.3, over TCP and QUIC.
    tls_1_3,
    /// Handshakes that chose AES-128-GCM.
    tls_aes_128_gcm,
    /// Handshakes that chose AES-256-GCM.
    tls_aes_256_gcm,
    /// Handshakes that chose ChaCha20-Poly1305.
    tls_chacha20_poly1305,
    /// Handshakes whose keys were agreed with X25519MLKEM768, which is post-quantum.
    tls_x25519mlkem768,
    /// Handshakes whose keys were agreed with X25519.
    tls_x25519,
    /// Handshakes whose keys were agreed with secp256r1.
    tls_secp256r1,
    /// Handshakes whose keys were agreed with secp384r1.
    tls_secp384r1,
    /// Handshakes whose keys were agreed with another group.
    tls_other_group,
    /// TCP connections that resumed a session.
    tcp_resumed,
    /// QUIC connections that resumed a session.
    quic_resumed,
    /// Connections whose early data (0-RTT) was taken.
    early_data_accepted,
    /// Connections whose early data was refused because none is taken.
    early_data_refused_off,
    /// Connections whose early data was refused because their session is not there: used before, pushed out, expired or made up.
    early_data_refused_no_session,
    /// Connections whose early data was refused although their session was resumed: the ticket's age is wrong, or another protocol is
    /// spoken now.
    early_data_refused_stale,
    /// Sessions stored, so that clients may resume them.
    sessions_stored,
    /// Sessions handed out to be resumed.
    sessions_taken,
    /// Sessions asked for that are not there: used before, pushed out, expired or made up.
    sessions_unknown,
    /// Sessions dropped because they were too old.
    sessions_expired,
    /// Sessions pushed out, or not stored, because there were too many.
    sessions_evicted,
    /// Sessions pushed out, or not stored, because they had too many bytes.
    sessions_evicted_for_bytes,
    /// Requests in early data that a handler answered.
    requests_early,
    /// Requests in early data whose method is not safe, answered with 425 Too Early.
    requests_too_early,
    /// Requests and responses over HTTP/3 that had to wait for the peer's QPACK encoder.
    qpack_streams_blocked,
    /// Requests whose exchange ended before the response was handed over whole.
    requests_aborted,
    /// Requests refused as malformed or too large before a handler saw them.
    requests_refused,
    /// Connections refused because all that may be open were.
    connections_refused,
    /// Connections refused because their client address had as many open as it may.
    connections_refused_per_client,
    /// Handshakes that took too long, over QUIC and TCP.
    handshakes_timed_out,
    /// Connections closed for idling, over QUIC and TCP.
    idle_timeouts,
    /// Requests whose head took too long.
    head_timeouts,
    /// Requests whose content did not come.
    body_timeouts,
    /// Requests whose content came too slowly.
    bodies_too_slow,
    /// Requests with more content than is taken.
    bodies_too_large,
    /// Responses that the peer did not take.
    response_timeouts,
    /// Responses that the peer took too slowly.
    responses_too_slow,
    /// Requests over HTTP/2 refused, and HTTP/3 connections closed, because too many were open at once.
    streams_refused,
    /// Requests refused because the worker had too many open.
    requests_shed,
    /// Requests over HTTP/3 refused because too many heads were incomplete.
    partial_heads_refused,
    /// Requests whose head had too many bytes.
    heads_too_large,
    /// Requests whose head had too many field lines.
    heads_too_many_lines,
    /// Streams over HTTP/2 reset for content beyond their window.
    stream_window_overruns,
    /// Connections closed for content beyond a window.
    connection_window_overruns,
    /// Times that a response had to wait for room in the transport.
    send_window_waits,
    /// Windows for receiving that are smaller than they would be because the budget for them ran low, counted at each attempt.
    windows_reduced,
    /// Requests over HTTP/2 stopped because too much of them came after their answer.
    linger_overruns,
    /// Requests over HTTP/2 stopped because their end did not come after their answer.
    linger_timeouts,
    /// Times that a window for receiving grew to what its path carries.
    windows_grown,
    /// Times that a connection came to send less at once because the budget for that ran low.
    send_windows_reduced,
    /// HTTP/2 connections closed because the peer took back too many requests.
    reset_floods,
    /// HTTP/2 connections closed because the peer took back too many requests before they reached a handler.
    reset_floods_before_accept,
    /// HTTP/2 connections closed because the peer made too many errors on streams.
    stream_error_floods,
    /// HTTP/2 connections closed for too many frames that carry nothing.
    control_frame_floods,
    /// HTTP/2 connections closed for a head in too many frames.
    continuation_floods,
    /// HTTP/3 connections closed for too many frames that carry nothing.
    useless_frame_floods,
    /// HTTP/3 connections closed for too many bytes that mean nothing.
    useless_byte_floods,
    /// HTTP/3 connections closed for too many streams of unknown type.
    unknown_stream_floods,
    /// HTTP/3 connections closed for too many frames on the control stream.
    control_stream_floods,
    /// HTTP/3 connections closed because the peer took back too many requests, or broke rules in too many.
    aborted_request_floods,
    /// HTTP/3 connections closed for a SETTINGS or PRIORITY_UPDATE frame that was too large.
    oversized_frames,
    /// HTTP/3 connections closed because the peer did not take what the header table's decoder had to tell it.
    decoder_backlogs,
    /// HTTP/3 connections closed for what came on streams that wait for the header table.
    blocked_stream_overruns,
    /// HTTP/3 connections closed because the peer made the header table larger than it may be.
    qpack_tables_exceeded,
    /// HTTP/3 connections closed because too many heads waited for the header table.
    qpack_blocked_streams_exceeded,
    /// HTTP/3 connections whose peer offers a larger header table than is used.
    qpack_tables_reduced,
    /// HTTP/3 connections closed because the peer opened too many unidirectional streams.
    uni_streams_refused,
    /// QUIC clients whose address was proved by a token of an earlier connection.
    tokens_accepted,
    /// Tokens of earlier connections that proved nothing, because they were used or too old.
    tokens_refused,
    /// Times that datagrams were not sent, because it would have been more than three times what came from an address not proved.
    amplification_withheld,
    /// Stateless resets sent.
    stateless_resets_sent,
    /// Stateless resets not sent, because there were too many in a second.
    stateless_resets_withheld,
    /// Handlers and other futures of the application that panicked. What they were at work for was answered 500, or reset.
    handler_panics,
    /// Responses whose `content-length` was not what their handler gave as content, or no number.
    content_lengths_corrected,
    /// Interim responses not sent because a request had too many.
    interim_responses_dropped,
    /// PRIORITY_UPDATE frames that changed the order of what is sent.
    priority_updates,
    /// PRIORITY_UPDATE frames forgotten because too many waited for their requests.
    priority_updates_dropped,
    /// WebTransport sessions accepted.
    webtransport_sessions,
    /// Requests for a WebTransport session refused because their connection had as many as it may.
    webtransport_sessions_refused,
    /// HTTP/3 connections closed because the peer opened too many unidirectional streams once it had a WebTransport session.
    webtransport_streams_refused,
    /// Streams refused because too many waited for their WebTransport session.
    webtransport_early_streams_refused,
    /// Datagrams of WebTransport sessions dropped because too many waited: for their session, for the application or for the network.
    webtransport_datagrams_dropped,
    /// WebTransport sessions that were closed here, and whose peer did not end its side in time.
    webtransport_closes_timed_out,
    /// Datagrams received.
    datagrams_received,
    /// Datagrams sent.
    datagrams_sent,
    /// Datagrams that belong to nothing and deserve no answer: random bytes, truncated packets.
    datagrams_ignored,
    /// Datagrams that could not be sent; QUIC sends their content again.
    datagrams_unsent,
    /// Version Negotiation packets sent.
    version_negotiations_sent,
    /// Stateless resets, refusals and Retry packets sent, in sum.
    stateless_answers_sent,
    /// Answers to datagrams of no connection that were dropped because too many waited to be sent.
    stateless_answers_dropped,
    /// Datagrams passed to the worker that their connection ID names.
    strays_passed_on,
    /// Datagrams for another worker that were dropped because its mailbox was full.
    strays_dropped,
}
