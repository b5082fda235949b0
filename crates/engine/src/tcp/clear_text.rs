//! Clear-text HTTP on a TLS port: a user who typed `http://`, or a misconfigured probe.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};

use super::PeerEnd;
use crate::context::Context;
use crate::http1::{PeerExpectation, close};

const EXPLANATION: &str =
    "The plain HTTP request was sent to an HTTPS port: use https:// in place of http://\n";

/// A client's first bytes, as many as distinguish HTTP from TLS: the header of a TLS record is
/// never made of letters.
#[derive(Debug, Default)]
pub(super) struct FirstBytes {
    bytes: [u8; 5],
    count: usize,
}

impl FirstBytes {
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let free = &mut self.bytes[self.count..];
        let count = free.len().min(bytes.len());
        free[..count].copy_from_slice(&bytes[..count]);
        self.count += count;
    }

    /// Returns the request, if the bytes begin one: a method in capitals, as all registered ones
    /// are, followed by a space if it is short.
    pub(super) fn clear_text(&self) -> Option<ClearText> {
        let bytes = self.bytes.get(..self.count).filter(|bytes| bytes.len() == self.bytes.len())?;
        let method = bytes.split(|byte| *byte == b' ').next()?;
        let is_method = method.len() >= 3 && method.iter().all(u8::is_ascii_uppercase);
        is_method.then_some(ClearText { is_head: method == b"HEAD" })
    }
}

/// A request sent without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClearText {
    is_head: bool,
}

/// Sends an error response in clear text, and closes the connection once the client has read it.
pub(super) async fn refuse<T: AsyncRead + AsyncWrite + PeerEnd + Unpin>(
    mut io: T,
    request: ClearText,
    context: &Context,
) {
    let date = context.date.value(context.handle.now());
    let date = date.to_str().unwrap_or_default();
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ndate: {date}\r\ncontent-type: text/plain; \
            charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n",
        EXPLANATION.len()
    );
    let response = head + if request.is_head { "" } else { EXPLANATION };
    // This is the connection's first write, so the response fits into the socket's buffer.
    let written = poll_fn(|cx| match Pin::new(&mut io).poll_write(cx, response.as_bytes()) {
        Poll::Ready(Ok(count)) => Poll::Ready(count == response.len()),
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(false),
    });
    if written.await {
        close(io, PeerExpectation::MoreRequests, context).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> Option<ClearText> {
        let mut first = FirstBytes::default();
        for piece in pieces {
            first.read(piece);
        }
        first.clear_text()
    }

    #[test]
    fn methods_are_told_from_records_however_they_come() {
        for text in ["GET / HTTP/1.1", "OPTIONS *", "POST /", "CONNECT a:1", "PRI * HTTP/2.0"] {
            assert_eq!(of(&[text.as_bytes()]), Some(ClearText { is_head: false }), "{text}");
            let single: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(of(&single), Some(ClearText { is_head: false }), "{text}");
        }
        assert_eq!(of(&[b"HEAD / HTTP/1.1"]), Some(ClearText { is_head: true }));
        for other in [
            &b"\x16\x03\x01\x02\x00\x01"[..],
            b"\x80\x2e\x01\x00\x02",
            b"GET ",
            b"",
            b"\r\n\r\nGET",
            b"get / ",
            b"A / H",
            b"     ",
        ] {
            assert_eq!(of(&[other]), None, "{other:?}");
        }
    }
}
