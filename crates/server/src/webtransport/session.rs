//! The application's side of a session, and the tasks on the worker that drive it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_engine as engine;
use pronghorn_engine::{DatagramError, DatagramSender, SessionEnd, SessionStreamError};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::tasks::{run_until, spawn};
use super::{RecvStream, SendStream};

/// Number of streams or datagrams queued for the application. Further ones wait in the engine,
/// which limits them.
const AHEAD: usize = 1;

/// A WebTransport session. Cheap to clone. Dropping the last clone closes the session with code 0,
/// even if some of its streams still exist.
///
/// ```
/// use pronghorn_server::WebTransport;
///
/// /// Sends back what comes, until the session ends.
/// async fn echo(session: WebTransport) {
///     loop {
///         tokio::select! {
///             datagram = session.read_datagram() => match datagram {
///                 Ok(datagram) => drop(session.send_datagram(datagram)),
///                 Err(end) => return println!("{end}"),
///             },
///             Ok((mut send, mut receive)) = session.accept_bi() => drop(tokio::spawn(async move {
///                 while let Ok(Some(piece)) = receive.read().await {
///                     if send.write(piece).await.is_err() {
///                         return;
///                     }
///                 }
///                 send.finish();
///             })),
///         }
///     }
/// }
/// # let _ = echo;
/// ```
#[derive(Clone)]
pub struct WebTransport(Arc<Channels>);

type Bidirectional = (SendStream, RecvStream);

/// The application's ends of the channels to the worker.
struct Channels {
    bidirectional: Mutex<mpsc::Receiver<Bidirectional>>,
    unidirectional: Mutex<mpsc::Receiver<RecvStream>>,
    datagrams: Mutex<mpsc::Receiver<Bytes>>,
    sender: DatagramSender,
    commands: mpsc::UnboundedSender<Command>,
    end: watch::Receiver<Option<SessionEnd>>,
    draining: watch::Receiver<bool>,
}

/// A command from the application to the session. A peer cannot cause the application to send
/// unboundedly many.
enum Command {
    OpenBidirectional(oneshot::Sender<Result<Bidirectional, SessionStreamError>>),
    OpenUnidirectional(oneshot::Sender<Result<SendStream, SessionStreamError>>),
    Drain,
    Close(u32, String),
}

impl WebTransport {
    /// Returns the application's side of an engine session, and spawns tasks that drive the session
    /// on its worker until the application drops this value.
    pub(super) fn from_engine(session: &engine::WebTransport) -> Self {
        let handle = session.handle();
        let (bidirectional, accepted_bidirectional) = mpsc::channel(AHEAD);
        let (unidirectional, accepted_unidirectional) = mpsc::channel(AHEAD);
        let (datagrams, received) = mpsc::channel(AHEAD);
        let (commands, given) = mpsc::unbounded_channel();
        let (told_end, end) = watch::channel(None);
        let (told_draining, draining) = watch::channel(false);
        spawn(handle, accept_bidirectional(session.clone(), bidirectional));
        spawn(handle, accept_unidirectional(session.clone(), unidirectional));
        spawn(handle, receive(session.clone(), datagrams));
        spawn(handle, run_commands(session.clone(), given));
        let watched = session.clone();
        spawn(handle, async move {
            if let Some(end) = run_until(told_end.closed(), watched.closed()).await {
                told_end.send_replace(Some(end));
            }
        });
        let watched = session.clone();
        spawn(handle, async move {
            if run_until(told_draining.closed(), watched.draining()).await.is_some() {
                told_draining.send_replace(true);
            }
        });
        Self(Arc::new(Channels {
            bidirectional: Mutex::new(accepted_bidirectional),
            unidirectional: Mutex::new(accepted_unidirectional),
            datagrams: Mutex::new(received),
            sender: session.datagram_sender(),
            commands,
            end,
            draining,
        }))
    }

    /// Waits for the next bidirectional stream opened by the peer.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{SessionEnd, WebTransport};
    /// async fn answer(session: &WebTransport) -> Result<(), SessionEnd> {
    ///     let (mut send, mut receive) = session.accept_bi().await?;
    ///     if let Ok(Some(asked)) = receive.read().await {
    ///         let _ = send.write(format!("{} bytes", asked.len())).await;
    ///         send.finish();
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = answer;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not lose a stream.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), SessionEnd> {
        let stream = self.0.bidirectional.lock().await.recv().await;
        self.or_end(stream).await
    }

    /// Waits for the next unidirectional stream opened by the peer.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{SessionEnd, WebTransport};
    /// async fn count(session: &WebTransport) -> Result<usize, SessionEnd> {
    ///     let (mut stream, mut bytes) = (session.accept_uni().await?, 0);
    ///     while let Ok(Some(piece)) = stream.read().await {
    ///         bytes += piece.len();
    ///     }
    ///     Ok(bytes)
    /// }
    /// # let _ = count;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not lose a stream.
    pub async fn accept_uni(&self) -> Result<RecvStream, SessionEnd> {
        let stream = self.0.unidirectional.lock().await.recv().await;
        self.or_end(stream).await
    }

    /// Opens a bidirectional stream. Waits until the peer permits another stream.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{SessionStreamError, WebTransport};
    /// async fn ask(session: &WebTransport) -> Result<Vec<u8>, SessionStreamError> {
    ///     let (mut send, mut receive) = session.open_bi().await?;
    ///     send.write("who is there?").await?;
    ///     send.finish();
    ///     let mut answer = Vec::new();
    ///     while let Some(piece) = receive.read().await? {
    ///         answer.extend_from_slice(&piece);
    ///         answer.truncate(1024);
    ///     }
    ///     Ok(answer)
    /// }
    /// # let _ = ask;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the stream, which may already be open.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), SessionStreamError> {
        let (reply, opened) = oneshot::channel();
        self.command(Command::OpenBidirectional(reply));
        opened.await.unwrap_or(Err(SessionStreamError::SessionEnded))
    }

    /// Opens a unidirectional stream. Waits until the peer permits another stream. See
    /// [`SendStream`] for an example.
    ///
    /// # Errors
    ///
    /// Returns an error if the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the stream, which may already be open.
    pub async fn open_uni(&self) -> Result<SendStream, SessionStreamError> {
        let (reply, opened) = oneshot::channel();
        self.command(Command::OpenUnidirectional(reply));
        opened.await.unwrap_or(Err(SessionStreamError::SessionEnded))
    }

    /// Waits for the next datagram from the peer.
    ///
    /// # Errors
    ///
    /// Returns an error if the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not lose a datagram.
    pub async fn read_datagram(&self) -> Result<Bytes, SessionEnd> {
        let datagram = self.0.datagrams.lock().await.recv().await;
        self.or_end(datagram).await
    }

    /// Sends a datagram without waiting. It arrives once or not at all.
    ///
    /// If the queue exceeds
    /// [`Limits::webtransport_datagram_bytes`](crate::Limits::webtransport_datagram_bytes), the
    /// oldest datagram is dropped.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{DatagramError, WebTransport};
    /// fn tell(session: &WebTransport, position: [u8; 12]) {
    ///     match session.send_datagram(position.to_vec()) {
    ///         // The next one is as good.
    ///         Ok(()) | Err(DatagramError::TooLarge { .. }) => {}
    ///         Err(error) => println!("{error}"),
    ///     }
    /// }
    /// # let _ = tell;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the datagram is too large, the peer does not support datagrams, or the
    /// session has ended.
    pub fn send_datagram(&self, datagram: impl Into<Bytes>) -> Result<(), DatagramError> {
        self.0.sender.send(datagram)
    }

    /// Returns the current maximum size of a datagram in bytes, which changes with the path.
    ///
    /// `None` if the peer does not support datagrams, and at the very beginning of a session. A
    /// datagram that is sent then and turns out to be too large is lost.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.0.sender.max_size()
    }

    /// Waits for the end of the session, and returns how it ended.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{SessionEnd, WebTransport};
    /// async fn note(session: &WebTransport) {
    ///     match session.closed().await {
    ///         SessionEnd::Peer { code, reason } => println!("the client left with {code}: {reason}"),
    ///         end => println!("{end}"),
    ///     }
    /// }
    /// # let _ = note;
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn closed(&self) -> SessionEnd {
        let mut end = self.0.end.clone();
        let told = end.wait_for(Option::is_some).await;
        let told = told.ok().and_then(|told| told.clone());
        told.unwrap_or_else(|| SessionEnd::Lost("the server has shut down".to_owned()))
    }

    /// Closes the session. `reason` is truncated to 1024 bytes.
    ///
    /// Unfinished streams are reset on both sides. To be sure that the peer has received
    /// everything, wait for its answer first.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::WebTransport;
    /// const FULL: u32 = 1;
    ///
    /// fn turn_away(session: &WebTransport) {
    ///     session.close(FULL, "the room is full");
    /// }
    /// # let _ = turn_away;
    /// ```
    pub fn close(&self, code: u32, reason: &str) {
        self.command(Command::Close(code, reason.to_owned()));
    }

    /// Asks the peer to wind the session down. The session continues until one side closes it.
    pub fn drain(&self) {
        self.command(Command::Drain);
    }

    /// Waits until the peer asks to wind the session down, until the connection is about to close,
    /// as when the server shuts down, or until the session has ended.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::WebTransport;
    /// async fn serve(session: WebTransport) {
    ///     tokio::select! {
    ///         () = work(&session) => {}
    ///         () = session.draining() => session.close(0, "we will be back"),
    ///     }
    /// }
    /// # async fn work(session: &WebTransport) { session.closed().await; }
    /// # let _ = serve;
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn draining(&self) {
        let mut draining = self.0.draining.clone();
        // An error means that the worker, and with it the session, is gone.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    fn command(&self, command: Command) {
        // Sending fails only if the worker, and with it the session, is gone.
        let _ = self.0.commands.send(command);
    }

    async fn or_end<T>(&self, found: Option<T>) -> Result<T, SessionEnd> {
        match found {
            Some(found) => Ok(found),
            None => Err(self.closed().await),
        }
    }
}

impl fmt::Debug for WebTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebTransport").finish_non_exhaustive()
    }
}

/// Passes streams opened by the peer to the application, one ahead of it.
async fn accept_bidirectional(session: engine::WebTransport, streams: mpsc::Sender<Bidirectional>) {
    while let Ok(permit) = streams.reserve().await {
        let Some(Ok((send, receive))) = run_until(streams.closed(), session.accept_bi()).await
        else {
            return;
        };
        permit.send((
            SendStream::from_engine(send, session.handle()),
            RecvStream::from_engine(receive, session.handle()),
        ));
    }
}

async fn accept_unidirectional(session: engine::WebTransport, streams: mpsc::Sender<RecvStream>) {
    while let Ok(permit) = streams.reserve().await {
        let Some(Ok(receive)) = run_until(streams.closed(), session.accept_uni()).await else {
            return;
        };
        permit.send(RecvStream::from_engine(receive, session.handle()));
    }
}

async fn receive(session: engine::WebTransport, datagrams: mpsc::Sender<Bytes>) {
    while let Ok(permit) = datagrams.reserve().await {
        let Some(Ok(datagram)) = run_until(datagrams.closed(), session.read_datagram()).await
        else {
            return;
        };
        permit.send(datagram);
    }
}

/// Executes the application's commands until the application has dropped the session.
async fn run_commands(
    session: engine::WebTransport,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            Command::OpenBidirectional(reply) => {
                spawn(session.handle(), open_bidirectional(session.clone(), reply));
            }
            Command::OpenUnidirectional(reply) => {
                spawn(session.handle(), open_unidirectional(session.clone(), reply));
            }
            Command::Drain => session.drain(),
            Command::Close(code, reason) => session.close(code, &reason),
        }
    }
}

async fn open_bidirectional(
    session: engine::WebTransport,
    mut reply: oneshot::Sender<Result<Bidirectional, SessionStreamError>>,
) {
    let Some(opened) = run_until(reply.closed(), session.open_bi()).await else { return };
    let handle = session.handle();
    // If the application no longer waits, the stream is dropped and thereby reset.
    let _ = reply.send(opened.map(|(send, receive)| {
        (SendStream::from_engine(send, handle), RecvStream::from_engine(receive, handle))
    }));
}

async fn open_unidirectional(
    session: engine::WebTransport,
    mut reply: oneshot::Sender<Result<SendStream, SessionStreamError>>,
) {
    let Some(opened) = run_until(reply.closed(), session.open_uni()).await else { return };
    let _ = reply.send(opened.map(|send| SendStream::from_engine(send, session.handle())));
}
