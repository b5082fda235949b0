//! A connection of either end: bytes in, bytes out, at the same time.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};

use super::protocol::{Decoder, FrameError, Message};

/// Bytes read at once.
const READ_BYTES: usize = 32 << 10;

/// What has happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Bytes arrived; messages may be complete.
    Received,
    /// Bytes were written.
    Sent,
    /// The peer has closed its side.
    Closed,
}

/// A byte stream with the messages on it.
pub(crate) struct Pipe<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    decoder: Decoder,
    chunk: Box<[u8]>,
    out: BytesMut,
    /// Whether the TLS library may retain written bytes.
    is_unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite> Pipe<S> {
    /// `limit`: maximum size of a received message.
    pub(crate) fn new(stream: S, limit: usize) -> Self {
        let (reader, writer) = split(stream);
        Self {
            reader,
            writer,
            decoder: Decoder::new(limit),
            chunk: vec![0; READ_BYTES].into(),
            out: BytesMut::new(),
            is_unflushed: false,
        }
    }

    /// Returns the next message of what has been received.
    pub(crate) fn poll_message(&mut self) -> Result<Option<Message>, FrameError> {
        self.decoder.poll_message()
    }

    /// Returns the buffer of bytes to send.
    pub(crate) fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Returns whether everything has been handed to the system.
    pub(crate) fn is_sent(&self) -> bool {
        self.out.is_empty() && !self.is_unflushed
    }

    /// Waits until bytes are received or sent. Reads only if it `may_read`.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped before it returns, nothing is lost.
    pub(crate) async fn progress(&mut self, may_read: bool) -> io::Result<Progress> {
        let may_send = !self.is_sent();
        let Self { reader, writer, decoder, chunk, out, is_unflushed } = self;
        let send = async {
            if out.is_empty() {
                writer.flush().await?;
                *is_unflushed = false;
            } else {
                let written = writer.write(out).await?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                out.advance(written);
                *is_unflushed = true;
            }
            Ok(Progress::Sent)
        };
        tokio::select! {
            sent = send, if may_send => sent,
            read = reader.read(chunk), if may_read => match read? {
                0 => Ok(Progress::Closed),
                count => {
                    decoder.handle_bytes(&chunk[..count]);
                    Ok(Progress::Received)
                }
            },
            else => std::future::pending().await,
        }
    }

    /// Sends the end of the stream.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.writer.shutdown().await
    }
}
