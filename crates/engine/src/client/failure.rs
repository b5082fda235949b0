//! Maps the protocols' errors to the error of the exchange.

use std::io;

use h2::Reason;
use pronghorn_h3::ErrorCode;

use super::Error;
use super::http1::Http1Error;
use crate::limits::Limits;
use crate::{BodyError, StreamError};

pub(super) fn http1(error: &Http1Error) -> Error {
    let text = error.to_string();
    match error {
        Http1Error::Refused(_) => Error::Refused(text),
        Http1Error::Io(error) if is_lost(error) => Error::Unreachable(text),
        Http1Error::Io(_) | Http1Error::Incomplete => Error::Closed(text),
        Http1Error::HeadTooLarge => Error::HeadTooLarge(text),
        Http1Error::Malformed(_) | Http1Error::Content(_) => Error::Exchange(text),
    }
}

/// Like [`http1`], for a request whose response head has not arrived.
pub(super) fn http1_head(error: &Http1Error, limits: &Limits) -> Error {
    if matches!(error, Http1Error::HeadTooLarge) { head_too_large(limits) } else { http1(error) }
}

/// Maps an error of HTTP/2. `sent`: whether the request was on its way.
pub(super) fn http2(error: &h2::Error, sent: bool) -> Error {
    let text = error.to_string();
    let reason = error.reason();
    // RFC 9113, section 8.7: a refused stream was not processed.
    let unprocessed =
        (!sent && (error.is_io() || error.is_go_away())) || reason == Some(Reason::REFUSED_STREAM);
    // A graceful GOAWAY does not end requests that the peer has begun to process. So this request
    // came after the last one that it names.
    if unprocessed || (error.is_go_away() && error.is_remote() && reason == Some(Reason::NO_ERROR))
    {
        Error::Refused(text)
    } else if error.is_reset() && error.is_remote() {
        Error::Reset(text)
    } else if error.get_io().is_some_and(is_lost) {
        Error::Unreachable(text)
    } else if error.is_io() || error.is_go_away() {
        Error::Closed(text)
    } else {
        Error::Exchange(text)
    }
}

/// Like [`http2`], for a request whose response head has not arrived.
pub(super) fn http2_head(error: &h2::Error, limits: &Limits) -> Error {
    match http2(error, true) {
        // h2 reports no more of a head that it rejects.
        Error::Exchange(text) if error.is_library() && error.is_reset() => {
            Error::Exchange(format!(
                "{text}: the response head is malformed, or has more than {} bytes",
                limits.field_section_bytes()
            ))
        }
        error => error,
    }
}

/// Like [`http3`], for a request whose response head has not arrived.
pub(super) fn http3_head(error: &StreamError, limits: &Limits) -> Error {
    match error {
        StreamError::TooLarge(_) => head_too_large(limits),
        error => http3(error),
    }
}

fn head_too_large(limits: &Limits) -> Error {
    let (bytes, lines) = (limits.field_section_bytes(), limits.field_lines());
    Error::HeadTooLarge(format!("it has more than {bytes} bytes or {lines} lines"))
}

pub(super) fn http3(error: &StreamError) -> Error {
    let text = error.to_string();
    match error {
        StreamError::Refused(_) | StreamError::Reset(ErrorCode::H3_REQUEST_REJECTED) => {
            Error::Refused(text)
        }
        StreamError::Reset(_) => Error::Reset(text),
        StreamError::ConnectionClosed(_) => Error::Closed(text),
        StreamError::ConnectionLost => Error::Unreachable(text),
        StreamError::ExtendedConnectUnsupported(upgrade) => Error::NoUpgrade(upgrade.to_string()),
        StreamError::Malformed(_)
        | StreamError::TooLarge(_)
        | StreamError::Unsendable(_)
        | StreamError::BodyFailed => Error::Exchange(text),
    }
}

/// Maps the error with which a response body broke off.
impl From<&BodyError> for Error {
    fn from(error: &BodyError) -> Self {
        let error = if let Some(error) = error.downcast_ref::<StreamError>() {
            http3(error)
        } else if let Some(error) = error.downcast_ref::<h2::Error>() {
            http2(error, true)
        } else if let Some(error) = error.downcast_ref::<Http1Error>() {
            http1(error)
        } else {
            Self::Exchange(error.to_string())
        };
        match error {
            // The server has responded, so it has taken the request, whatever its error says.
            Self::Refused(reason) => Self::Reset(reason),
            error => error,
        }
    }
}

/// Whether the system has heard nothing from the peer.
fn is_lost(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;

    /// A connection that accepts all data and then fails.
    struct Failing {
        kind: io::ErrorKind,
        is_written: bool,
    }

    impl AsyncRead for Failing {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.is_written { Poll::Ready(Err(self.kind.into())) } else { Poll::Pending }
        }
    }

    impl AsyncWrite for Failing {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.is_written = true;
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn poll<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut polls = std::iter::repeat_with(|| {
            future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .take(10);
        let ready =
            polls.find_map(|poll| if let Poll::Ready(value) = poll { Some(value) } else { None });
        ready.expect("the future never completes")
    }

    #[test]
    fn io_timeout_maps_to_lost() {
        for (kind, lost) in
            [(io::ErrorKind::TimedOut, true), (io::ErrorKind::ConnectionReset, false)]
        {
            let failing = || Failing { kind, is_written: false };
            let (_sender, connection) = poll(h2::client::handshake(failing())).unwrap();
            let error = http2(&poll(connection).unwrap_err(), true);
            assert_eq!(
                (matches!(error, Error::Unreachable(_)), matches!(error, Error::Closed(_))),
                (lost, !lost),
                "{error}"
            );

            let error = http1(&Http1Error::Io(kind.into()));
            assert_eq!(
                (matches!(error, Error::Unreachable(_)), matches!(error, Error::Closed(_))),
                (lost, !lost),
                "{error}"
            );
        }
    }
}
