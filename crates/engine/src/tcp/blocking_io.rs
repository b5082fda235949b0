//! Adapts an asynchronous stream to rustls, which reads and writes synchronously.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::clear_text::FirstBytes;
use crate::tls::{BufferedRecords, RecordedOffer};

/// The read half of `T`: returns `WouldBlock` where a task would wait.
pub(super) struct PolledRead<'a, 'b, T> {
    pub(super) io: &'a mut T,
    pub(super) cx: &'a mut Context<'b>,
}

impl<T: AsyncRead + Unpin> Read for PolledRead<'_, '_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Reads the client's handshake, and extracts what rustls does not report about it.
pub(super) struct InspectedRead<'a, R> {
    pub(super) io: &'a mut R,
    pub(super) offer: &'a mut RecordedOffer,
    pub(super) beginning: &'a mut FirstFlight,
}

/// A client's first bytes, kept until the handshake is done.
#[derive(Debug, Default)]
pub(super) struct FirstFlight {
    pub(super) held: BufferedRecords,
    pub(super) first: FirstBytes,
}

impl<R: Read> Read for InspectedRead<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let FirstFlight { held, first } = &mut *self.beginning;
        loop {
            let ready = held.take(buffer);
            if ready > 0 || buffer.is_empty() {
                return Ok(ready);
            }
            let count = self.io.read(buffer)?;
            if count == 0 {
                if held.is_empty() {
                    return Ok(0);
                }
                held.pass_through();
                continue;
            }
            self.offer.read(&buffer[..count]);
            first.read(&buffer[..count]);
            held.read(&buffer[..count]);
        }
    }
}

pub(super) struct PolledWrite<'a, 'b, T> {
    pub(super) io: &'a mut T,
    pub(super) cx: &'a mut Context<'b>,
}

impl<T: AsyncWrite + Unpin> Write for PolledWrite<'_, '_, T> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        polled(Pin::new(&mut *self.io).poll_write(self.cx, data))
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        polled(Pin::new(&mut *self.io).poll_write_vectored(self.cx, data))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn polled(poll: Poll<io::Result<usize>>) -> io::Result<usize> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
