//! What a server has still said that reads no more.
//!
//! A server may answer an upload before its end and close the connection, with content that it has not read. The system then resets the
//! connection, and writing to it fails; but what had come before can still be read. The library gives up a connection that cannot be written to.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that is read to its end when it cannot be written to any more. What is written then is thrown away, as by a server that reads
/// on and has no use for it, and the end is the error of the write: it does not complete a response that has no length.
pub(super) struct LastWords<T> {
    io: T,
    failure: Option<io::Error>,
}

impl<T> LastWords<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, failure: None }
    }

    /// What became of writing; `taken` where the server has gone.
    fn unless_gone<V>(&mut self, result: io::Result<V>, taken: V) -> io::Result<V> {
        match result {
            Err(error) if is_gone(&error) => {
                self.failure = Some(error);
                Ok(taken)
            }
            result => result,
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted)
}

/// The same error once more.
fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

impl<T: AsyncRead + Unpin> AsyncRead for LastWords<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        Poll::Ready(match &self.failure {
            Some(failure) if buffer.filled().len() == before && buffer.remaining() > 0 => Err(again(failure)),
            _ => Ok(()),
        })
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for LastWords<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.failure.is_some() {
            return Poll::Ready(Ok(data.len()));
        }
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, data));
        Poll::Ready(self.unless_gone(written, data.len()))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let whole = || data.iter().map(|slice| slice.len()).sum();
        if self.failure.is_some() {
            return Poll::Ready(Ok(whole()));
        }
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, data));
        Poll::Ready(self.unless_gone(written, whole()))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failure.is_some() {
            return Poll::Ready(Ok(()));
        }
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(cx));
        Poll::Ready(self.unless_gone(flushed, ()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failure.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Waker;

    use bytes::Bytes;
    use http_body_util::BodyExt as _;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;

    use super::*;
    use crate::Body;

    /// A server that takes nothing, and has said this before.
    struct Gone {
        said: &'static [u8],
        is_written: bool,
    }

    impl AsyncRead for Gone {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if !self.is_written {
                return Poll::Pending;
            }
            buffer.put_slice(std::mem::take(&mut self.said));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Gone {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            self.is_written = true;
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            panic!("there is nobody to tell")
        }
    }

    /// The status and content of the answer to an upload.
    fn upload(said: &'static [u8]) -> Result<(u16, Bytes), hyper::Error> {
        let mut exchange = pin!(async move {
            let io = TokioIo::new(LastWords::new(Gone { said, is_written: false }));
            let (mut sender, connection) = http1::handshake(io).await?;
            let request = http::Request::post("/").body(Body::from(vec![0; 1 << 20])).expect("a request");
            let response = sender.send_request(request);
            let mut connection = pin!(connection);
            let mut answer = pin!(async {
                let (head, body) = response.await?.into_parts();
                Ok((head.status.as_u16(), body.collect().await?.to_bytes()))
            });
            std::future::poll_fn(|cx| {
                let _ = connection.as_mut().poll(cx);
                answer.as_mut().poll(cx)
            })
            .await
        });
        let mut polls = std::iter::repeat_with(|| exchange.as_mut().poll(&mut Context::from_waker(Waker::noop()))).take(100);
        polls.find_map(|poll| if let Poll::Ready(answer) = poll { Some(answer) } else { None }).expect("it waits")
    }

    #[test]
    fn answer_of_a_server_that_reads_no_more_is_read() {
        let (status, content) = upload(b"HTTP/1.1 413 Too Large\r\ncontent-length: 6\r\nconnection: close\r\n\r\nearly\n").unwrap();
        assert_eq!((status, &content[..]), (413, &b"early\n"[..]));
    }

    #[test]
    fn reset_is_no_end_of_an_answer() {
        for said in [
            &b""[..],
            b"HTTP/1.1 413 Too Large\r\ncont",
            b"HTTP/1.1 413 Too Large\r\ncontent-length: 6\r\n\r\near",
            b"HTTP/1.1 413 Too Large\r\nconnection: close\r\n\r\near",
        ] {
            let error = upload(said).unwrap_err();
            let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
            let kind = source.map(io::Error::kind);
            assert!(kind == Some(io::ErrorKind::BrokenPipe) || error.is_incomplete_message(), "{said:?}: {error:?}");
        }
    }
}
