//! WebSockets that a stream keeps open when messages are sent in place of requests.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use pronghorn_engine::Error;
use pronghorn_engine::websocket::{self, ConnectError, Message, Options, WebSocket, connect};

use crate::generator::Generator;
use crate::lane::{Lane, LaneConnection};
use crate::plan::MAX_MESSAGE_BYTES;

/// An open WebSocket, and the connection below it.
pub(crate) struct OpenWebSocket {
    websocket: WebSocket,
    _hold: LaneConnection,
}

/// The server's answer to a WebSocket request.
pub(crate) enum OpenResult {
    Open(Box<OpenWebSocket>),
    /// The server refused it with this status.
    Refused(StatusCode),
}

impl OpenWebSocket {
    /// Opens a WebSocket over the lane's connection, which is opened if there is none.
    pub(crate) async fn open(generator: &Generator, lane: &Lane) -> Result<OpenResult, Error> {
        let result = Self::ask(generator, lane).await;
        generator.tally.borrow_mut().on_websocket(matches!(result, Ok(OpenResult::Open(_))));
        result
    }

    async fn ask(generator: &Generator, lane: &Lane) -> Result<OpenResult, Error> {
        // Boxed: a handshake is large, and every stream would reserve the space for one.
        let mut hold = Box::pin(lane.take(0)).await?;
        let options = Options::default().with_message_bytes(MAX_MESSAGE_BYTES);
        let asked = Box::pin(connect(
            &mut hold.connection,
            generator.next_url(),
            generator.fields().clone(),
            &options,
        ))
        .await;
        match asked {
            Ok(websocket) => {
                lane.on_response();
                Ok(OpenResult::Open(Box::new(Self { websocket, _hold: hold })))
            }
            Err(ConnectError::Refused(response)) => Ok(OpenResult::Refused(response.status())),
            Err(ConnectError::Request(error)) => Err(error),
            Err(error) => Err(Error::Exchange(error.to_string())),
        }
    }

    /// Sends a message and returns the next one received.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the reply to an abandoned message would be taken for that of the next.
    pub(crate) async fn exchange(&mut self, message: Message) -> Result<Bytes, Error> {
        let closed = |error: websocket::Error| match error {
            websocket::Error::Protocol(error) => Error::Exchange(error.to_string()),
            error => Error::Closed(error.to_string()),
        };
        self.websocket.send(message).await.map_err(closed)?;
        match self.websocket.recv().await {
            Some(Ok(message)) => Ok(message.into_data()),
            Some(Err(error)) => Err(closed(error)),
            None => Err(Error::Closed(match self.websocket.reason() {
                Some(reason) => {
                    format!("the server closed the WebSocket: {:?} {}", reason.code, reason.text)
                }
                None => "the server closed the WebSocket".to_owned(),
            })),
        }
    }

    /// Answers the server's pings while there is nothing to send, and discards its messages. Ready
    /// when the WebSocket has ended.
    pub(crate) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(Ok(_)) = std::task::ready!(self.websocket.poll_event(cx)) {}
        Poll::Ready(())
    }
}
