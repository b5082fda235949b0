//! One request on a connection, and the head of its response.

use std::future::poll_fn;

use http::{Request, Response, StatusCode};
use pronghorn_h3::Priority;

use super::connection::{Connection, Sender};
use super::http1::Http1;
use super::observer::Observer;
use super::{ClientRequest, Error, failure, for_http1, frame, request, upgrade, upload};
use crate::http3::{RequestHead, Stream};
use crate::message::Protocol;
use crate::{Body, Incoming, Upgrade};

/// An unanswered request over HTTP/1.1. Dropping it closes the connection: otherwise the next
/// request would get its response.
struct CloseOnDrop<'a>(Option<&'a Http1>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.abort();
        }
    }
}

impl Connection {
    /// The request is boxed, since a future that passes it on to another one would contain it more
    /// than once.
    pub(super) async fn deliver(
        &mut self,
        request: ClientRequest<'_>,
    ) -> Result<Response<Incoming>, Error> {
        let ClientRequest { mut request, on_interim, on_queue } = request;
        let observer = &mut Observer { on_interim, on_queue };
        frame(&mut request)?;
        let response = if self.is_early() {
            // Boxed, since it would enlarge the future of each request.
            Box::pin(self.deliver_early(request, observer)).await
        } else {
            self.exchange(request, observer).await
        };
        response.map_err(|error| self.handshake_failure().unwrap_or(error))
    }

    /// Sends the request before the handshake is complete.
    async fn deliver_early(
        &mut self,
        request: Box<Request<Body>>,
        observer: &mut Observer<'_>,
    ) -> Result<Response<Incoming>, Error> {
        let (request, again) = self.early(request).await?;
        let response = self.exchange(request, observer).await?;
        match again {
            Some(again) if response.status() == StatusCode::TOO_EARLY => {
                //= RFC 8470 section 5.2
                //# A user agent SHOULD retry automatically, but any retries MUST NOT be sent in early data.
                drop(response);
                self.handshake().await?;
                self.exchange(again, observer).await
            }
            _ => Ok(response),
        }
    }

    /// Returns a request that may be sent early, with a copy; or, after the handshake, any request.
    async fn early(
        &self,
        request: Box<Request<Body>>,
    ) -> Result<(Box<Request<Body>>, Option<Box<Request<Body>>>), Error> {
        let (head, mut body) = request.into_parts();
        //= RFC 8470 section 4
        //# MUST NOT send unsafe methods (or methods whose safety is not known) in early data.
        if head.method.is_safe()
            && head.extensions.get::<Upgrade>().is_none()
            && let Some(content) = body.take_full()
        {
            let copy = Request::from_parts(head.clone(), Body::from(content.clone()));
            return Ok((
                Box::new(Request::from_parts(head, Body::from(content))),
                Some(Box::new(copy)),
            ));
        }
        self.handshake().await?;
        Ok((Box::new(Request::from_parts(head, body)), None))
    }

    async fn exchange(
        &mut self,
        mut request: Box<Request<Body>>,
        observer: &mut Observer<'_>,
    ) -> Result<Response<Incoming>, Error> {
        let upgrade = request.extensions_mut().remove::<Upgrade>();
        if self.protocol != Protocol::Http1 {
            request::for_streams(&mut request, self.secure)?;
        }
        match &mut self.sender {
            Sender::Http1(connection) => {
                if !poll_fn(|cx| connection.poll_ready(cx)).await {
                    return Err(Error::Refused("the connection is closed".to_owned()));
                }
                let tunnel = match &upgrade {
                    None => {
                        for_http1(&mut request);
                        None
                    }
                    Some(upgrade) => {
                        let (asking, outgoing) = upgrade::for_http1(*request, upgrade)?;
                        *request = asking;
                        Some(Box::new((upgrade, outgoing)))
                    }
                };
                let mut unanswered = CloseOnDrop(Some(connection));
                let mut request = Some(request);
                let response = poll_fn(|cx| {
                    if let Some(request) = request.take() {
                        connection.begin(*request, tunnel.is_some(), &self.handle, cx)?;
                    }
                    connection.poll_head(&mut observer.on_interim, cx)
                });
                let response =
                    response.await.map_err(|error| failure::http1_head(&error, &self.limits))?;
                if let Some(tunnel) = tunnel
                    && response.status() == StatusCode::SWITCHING_PROTOCOLS
                {
                    let (upgrade, outgoing) = *tunnel;
                    if !upgrade::is_granted(&response, upgrade) {
                        return Err(Error::NoUpgrade(upgrade.to_string()));
                    }
                    unanswered.0 = None;
                    let tunnel = connection.hand_over(
                        outgoing,
                        &self.handle,
                        self.limits.response_timeout(),
                    );
                    return Ok(response.map(|()| Incoming::tunnel(tunnel)));
                }
                unanswered.0 = None;
                Ok(response.map(|()| Incoming::http1_response(connection.content())))
            }
            // Boxed, since they would make the future of each request over HTTP/1.1 three times as
            // large.
            Sender::Http2(..) => Box::pin(self.exchange_http2(request, upgrade, observer)).await,
            Sender::Http3(_) => Box::pin(self.exchange_http3(request, upgrade, observer)).await,
        }
    }

    async fn exchange_http2(
        &mut self,
        request: Box<Request<Body>>,
        upgrade: Option<Upgrade>,
        observer: &mut Observer<'_>,
    ) -> Result<Response<Incoming>, Error> {
        let Sender::Http2(sender, send_buffer, offer, slots) = &mut self.sender else {
            unreachable!("called for such a connection")
        };
        let request = match &upgrade {
            Some(upgrade)
                if !offer.wait(|| sender.is_extended_connect_protocol_enabled()).await =>
            {
                return Err(Error::NoUpgrade(upgrade.to_string()));
            }
            Some(upgrade) => upgrade::for_http2(*request, upgrade),
            None => *request,
        };
        let refused = || Error::Refused("the connection accepts no more requests".to_owned());
        let mut slot = slots.take(sender, &mut observer.on_queue).await.ok_or_else(refused)?;
        poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|error| failure::http2(&error, false))?;
        let (head, mut body) = request.into_parts();
        let request = Request::from_parts(head, ());
        let ends = body.full_size() == Some(0);
        let (mut response, mut stream) =
            sender.send_request(request, ends).map_err(|error| failure::http2(&error, false))?;
        // Passed to h2 at once if it fits into the windows. Otherwise it waits outside of h2, which
        // would buffer it for as long as it takes.
        let full = body.full_size().filter(|size| {
            stream.reserve_capacity(*size);
            *size <= stream.capacity().min(send_buffer.room_for(*size, Priority::default))
        });
        match full.and_then(|_| body.take_full()) {
            Some(data) if !ends => {
                stream
                    .send_data(send_buffer.hold(stream.stream_id().as_u32(), data), true)
                    .map_err(|error| failure::http2(&error, true))?;
            }
            Some(_) => {}
            None => self.handle.spawn(upload::send(
                stream,
                body,
                send_buffer.clone(),
                slot.share(),
                &self.handle,
                &self.limits,
            )),
        }
        if let Some(on_interim) = &mut observer.on_interim {
            while let Some(Ok(interim)) = poll_fn(|cx| response.poll_informational(cx)).await {
                let (head, ()) = interim.into_parts();
                // Status 101 does not exist over HTTP/2.
                if head.status != StatusCode::SWITCHING_PROTOCOLS {
                    on_interim(head.status, head.headers);
                }
            }
        }
        response
            .await
            .map(|response| response.map(|body| Incoming::http2_response(body, slot)))
            .map_err(|error| failure::http2_head(&error, &self.limits))
    }

    async fn exchange_http3(
        &mut self,
        request: Box<Request<Body>>,
        upgrade: Option<Upgrade>,
        observer: &mut Observer<'_>,
    ) -> Result<Response<Incoming>, Error> {
        let Sender::Http3(connection) = &self.sender else {
            unreachable!("called for such a connection")
        };
        let (head, body) = request.into_parts();
        let handle = &self.handle;
        let spawn = |stream: std::rc::Rc<Stream>, body| handle.spawn(stream.pump(body));
        let mut body = body;
        if upgrade.is_some() {
            body.set_tunnel();
        }
        let head =
            RequestHead { method: head.method, uri: head.uri, headers: head.headers, upgrade };
        let sent = connection.send(head, body, spawn, observer).await;
        let (status, headers, body) =
            sent.map_err(|error| failure::http3_head(&error, &self.limits))?;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
