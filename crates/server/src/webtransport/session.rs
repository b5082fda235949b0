//! A session: what an application has of it, and what looks after it on the worker.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use pronghorn_engine as engine;
use pronghorn_engine::{DatagramError, DatagramSender, SessionEnd, SessionStreamError};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::{RecvStream, SendStream, spawn, unless};

/// Streams and datagrams that are on their way to the application. Others wait with the engine, which bounds them.
const AHEAD: usize = 1;

/// A WebTransport session. Cheap to clone; dropping the last clone closes it with code 0, whatever became of its streams.
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
pub struct WebTransport(Arc<Ends>);

type Bidirectional = (SendStream, RecvStream);

/// The application's ends.
struct Ends {
    bidirectional: Mutex<mpsc::Receiver<Bidirectional>>,
    unidirectional: Mutex<mpsc::Receiver<RecvStream>>,
    datagrams: Mutex<mpsc::Receiver<Bytes>>,
    sender: DatagramSender,
    orders: mpsc::UnboundedSender<Order>,
    end: watch::Receiver<Option<SessionEnd>>,
    draining: watch::Receiver<bool>,
}

/// What the application wants of the session. It asks for nothing that a peer could make it ask for without end.
enum Order {
    OpenBidirectional(oneshot::Sender<Result<Bidirectional, SessionStreamError>>),
    OpenUnidirectional(oneshot::Sender<Result<SendStream, SessionStreamError>>),
    Drain,
    Close(u32, String),
}

impl WebTransport {
    /// The session for an application; the engine's is looked after on its worker, until the application has dropped this.
    pub(super) fn carry(session: &engine::WebTransport) -> Self {
        let handle = session.handle();
        let (bidirectional, accepted_bidirectional) = mpsc::channel(AHEAD);
        let (unidirectional, accepted_unidirectional) = mpsc::channel(AHEAD);
        let (datagrams, received) = mpsc::channel(AHEAD);
        let (orders, given) = mpsc::unbounded_channel();
        let (told_end, end) = watch::channel(None);
        let (told_draining, draining) = watch::channel(false);
        spawn(handle, accept_bidirectional(session.clone(), bidirectional));
        spawn(handle, accept_unidirectional(session.clone(), unidirectional));
        spawn(handle, receive(session.clone(), datagrams));
        spawn(handle, obey(session.clone(), given));
        let watched = session.clone();
        spawn(handle, async move {
            if let Some(end) = unless(told_end.closed(), watched.closed()).await {
                told_end.send_replace(Some(end));
            }
        });
        let watched = session.clone();
        spawn(handle, async move {
            if unless(told_draining.closed(), watched.draining()).await.is_some() {
                told_draining.send_replace(true);
            }
        });
        Self(Arc::new(Ends {
            bidirectional: Mutex::new(accepted_bidirectional),
            unidirectional: Mutex::new(accepted_unidirectional),
            datagrams: Mutex::new(received),
            sender: session.datagram_sender(),
            orders,
            end,
            draining,
        }))
    }

    /// Waits for a bidirectional stream that the peer opens.
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
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), SessionEnd> {
        let stream = self.0.bidirectional.lock().await.recv().await;
        self.or_end(stream).await
    }

    /// Waits for a unidirectional stream that the peer opens.
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
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    pub async fn accept_uni(&self) -> Result<RecvStream, SessionEnd> {
        let stream = self.0.unidirectional.lock().await.recv().await;
        self.or_end(stream).await
    }

    /// Opens a bidirectional stream, as soon as the peer allows another one.
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
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the stream up, which may be open already.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), SessionStreamError> {
        let (reply, opened) = oneshot::channel();
        self.order(Order::OpenBidirectional(reply));
        opened.await.unwrap_or(Err(SessionStreamError::SessionEnded))
    }

    /// Opens a unidirectional stream, as soon as the peer allows another one. [`SendStream`] shows it.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the stream up, which may be open already.
    pub async fn open_uni(&self) -> Result<SendStream, SessionStreamError> {
        let (reply, opened) = oneshot::channel();
        self.order(Order::OpenUnidirectional(reply));
        opened.await.unwrap_or(Err(SessionStreamError::SessionEnded))
    }

    /// Waits for a datagram of the peer.
    ///
    /// # Errors
    ///
    /// When the session is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no datagram.
    pub async fn read_datagram(&self) -> Result<Bytes, SessionEnd> {
        let datagram = self.0.datagrams.lock().await.recv().await;
        self.or_end(datagram).await
    }

    /// Sends a datagram, which arrives once or not at all, without waiting. When more wait for the network than
    /// [`Limits::webtransport_datagram_bytes`](crate::Limits::webtransport_datagram_bytes) allows, the oldest is dropped.
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
    /// When it is too large, the peer takes no datagrams, or the session is over.
    pub fn send_datagram(&self, datagram: impl Into<Bytes>) -> Result<(), DatagramError> {
        self.0.sender.send(datagram)
    }

    /// The most bytes that a datagram can carry now; it changes with the path. `None` if the peer takes no datagrams, and at the very
    /// beginning of a session; what is sent then and turns out to be too large is lost.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.0.sender.max_size()
    }

    /// Waits for the end of the session, and says how it came to that.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{SessionEnd, WebTransport};
    /// async fn note(session: &WebTransport) {
    ///     match session.closed().await {
    ///         SessionEnd::ByPeer { code, reason } => println!("the client left with {code}: {reason}"),
    ///         end => println!("{end}"),
    ///     }
    /// }
    /// # let _ = note;
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn closed(&self) -> SessionEnd {
        let mut end = self.0.end.clone();
        let told = end.wait_for(Option::is_some).await;
        let told = told.ok().and_then(|told| told.clone());
        told.unwrap_or_else(|| SessionEnd::Lost("the server has ended".to_owned()))
    }

    /// Closes the session; `reason` is cut to 1024 bytes. Streams that are not done yet are reset on both sides: who wants the peer to have
    /// everything waits for an answer first.
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
        self.order(Order::Close(code, reason.to_owned()));
    }

    /// Tells the peer that the session should come to an end; it goes on until one side closes it.
    pub fn drain(&self) {
        self.order(Order::Drain);
    }

    /// Waits until the peer wants the session to come to an end, or the connection does, as when the server is told to end; or until it has
    /// ended.
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
    /// Dropping the future changes nothing.
    pub async fn draining(&self) {
        let mut draining = self.0.draining.clone();
        // An error says that the worker is gone, and the session with it.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    fn order(&self, order: Order) {
        // Whoever does not hear it has ended with the worker.
        let _ = self.0.orders.send(order);
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

/// Brings the application the streams that the peer opens, one ahead of it.
async fn accept_bidirectional(session: engine::WebTransport, streams: mpsc::Sender<Bidirectional>) {
    while let Ok(permit) = streams.reserve().await {
        let Some(Ok((send, receive))) = unless(streams.closed(), session.accept_bi()).await else { return };
        permit.send((SendStream::carry(send, session.handle()), RecvStream::carry(receive, session.handle())));
    }
}

async fn accept_unidirectional(session: engine::WebTransport, streams: mpsc::Sender<RecvStream>) {
    while let Ok(permit) = streams.reserve().await {
        let Some(Ok(receive)) = unless(streams.closed(), session.accept_uni()).await else { return };
        permit.send(RecvStream::carry(receive, session.handle()));
    }
}

async fn receive(session: engine::WebTransport, datagrams: mpsc::Sender<Bytes>) {
    while let Ok(permit) = datagrams.reserve().await {
        let Some(Ok(datagram)) = unless(datagrams.closed(), session.read_datagram()).await else { return };
        permit.send(datagram);
    }
}

/// Does what the application wants, until it can want nothing more.
async fn obey(session: engine::WebTransport, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::OpenBidirectional(reply) => spawn(session.handle(), open_bidirectional(session.clone(), reply)),
            Order::OpenUnidirectional(reply) => spawn(session.handle(), open_unidirectional(session.clone(), reply)),
            Order::Drain => session.drain(),
            Order::Close(code, reason) => session.close(code, &reason),
        }
    }
}

async fn open_bidirectional(session: engine::WebTransport, mut reply: oneshot::Sender<Result<Bidirectional, SessionStreamError>>) {
    let Some(opened) = unless(reply.closed(), session.open_bi()).await else { return };
    let handle = session.handle();
    // Given up meanwhile, it is reset as any stream that is dropped.
    let _ = reply.send(opened.map(|(send, receive)| (SendStream::carry(send, handle), RecvStream::carry(receive, handle))));
}

async fn open_unidirectional(session: engine::WebTransport, mut reply: oneshot::Sender<Result<SendStream, SessionStreamError>>) {
    let Some(opened) = unless(reply.closed(), session.open_uni()).await else { return };
    let _ = reply.send(opened.map(|send| SendStream::carry(send, session.handle())));
}
