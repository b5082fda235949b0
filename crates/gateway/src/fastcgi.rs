//! Client for FastCGI applications such as PHP-FPM.
//!
//! Each request uses its own connection: an application process serves one connection at a time,
//! and an idle connection would occupy it.

mod connection_slots;
mod error_output;
mod exchange;
mod parameters;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use blocking::unblock;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode, Uri};
use pronghorn_client::{Error, Phase};
use pronghorn_engine::{Body, Connector, Error as Broken};

use self::connection_slots::ConnectionSlots;
use self::error_output::ErrorOutput;
pub(crate) use self::error_output::Listener;
pub(crate) use self::exchange::Content;
use self::exchange::{Exchange, Stream, broken};
pub(crate) use self::parameters::{RequestInfo, Script};
use crate::config::{ServerAddress, Upstream};
use crate::timeout::in_time;

/// Default port, as of PHP-FPM.
const PORT: u16 = 9000;

/// Fields that tell some web servers to send a file in place of the response body. Clients would
/// get the path and no content.
const LEAVING: [&str; 3] = ["x-accel-redirect", "x-sendfile", "x-lighttpd-send-file"];

/// FastCGI client for the servers of one upstream, on one worker.
pub(crate) struct Client {
    connector: Connector,
    connect_timeout: Duration,
    head_timeout: Duration,
    body_timeout: Duration,
    /// Connection slots, by index of the server.
    slots: Vec<ConnectionSlots>,
    listener: Listener,
}

/// A request for one server.
pub(crate) struct Request<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) content: Body,
}

impl Client {
    /// `listener` receives the error output of applications.
    pub(crate) fn new(connector: &Connector, settings: &Upstream, listener: Listener) -> Self {
        Self {
            connector: connector.clone(),
            connect_timeout: settings.connect_timeout.0,
            head_timeout: settings.head_timeout.0,
            body_timeout: settings.body_timeout.0,
            slots: settings
                .servers
                .iter()
                .map(|_| ConnectionSlots::new(settings.connections, settings.waiting))
                .collect(),
            listener,
        }
    }

    /// Sends a request to the server with this index.
    pub(crate) async fn ask(
        &self,
        number: usize,
        server: &ServerAddress,
        request: Request<'_>,
    ) -> Result<http::Response<Option<Box<Content>>>, Error> {
        let Request { info, method, uri, headers, content } = request;
        let handle = self.connector.handle();
        let place = self.slots[number]
            .take(handle, self.connect_timeout, server.authority.as_str())
            .await?;
        let connected = in_time(handle, self.connect_timeout, self.connect(server)).await;
        let stream = connected.unwrap_or(Err(Error::TimedOut(Phase::Connect)))?;
        let parameters = parameters::of(info, method, uri, headers);
        let mut exchange = Exchange::new(
            stream,
            handle.clone(),
            &parameters,
            content,
            ErrorOutput::new(self.listener.clone(), server.clone()),
        );
        let mut response = exchange.head(self.head_timeout).await?;
        if let Some(name) = LEAVING.iter().find(|name| response.headers().contains_key(**name)) {
            let why = format!(
                "the application leaves the response body to the web server ({name}), which is not \
                supported; have the application send it"
            );
            return Err(broken(Broken::Exchange(why)));
        }
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        let has_content = *method != Method::HEAD
            && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        // The parser of the head has validated the value.
        let length = response
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(response.map(|first| {
            has_content
                .then(|| Box::new(Content::new(exchange, self.body_timeout, first, length, place)))
        }))
    }

    async fn connect(&self, server: &ServerAddress) -> Result<Box<dyn Stream>, Error> {
        if let Some(path) = &server.socket {
            return Ok(Box::new(self.connector.open_unix(path).await?));
        }
        let mut last = None;
        for address in addresses(server).await? {
            match self.connector.open_tcp(address).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => last = Some(error),
            }
        }
        let nowhere =
            || Broken::Exchange(format!("no address found for {}", server.authority.host()));
        Err(broken(last.unwrap_or_else(nowhere)))
    }
}

async fn addresses(server: &ServerAddress) -> Result<Vec<SocketAddr>, Error> {
    let (host, port) = (
        server.authority.host().trim_matches(['[', ']']),
        server.authority.port_u16().unwrap_or(PORT),
    );
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let name = host.to_owned();
    let found = unblock(move || {
        std::net::ToSocketAddrs::to_socket_addrs(&(name, port)).map(Iterator::collect)
    })
    .await;
    found.map_err(|source| Error::Lookup { host: host.to_owned(), source: Arc::new(source) })
}
