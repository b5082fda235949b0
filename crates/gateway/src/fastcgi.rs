//! Asking applications over FastCGI, as PHP-FPM is one.
//!
//! Each request has a connection of its own: an application's process serves one connection at a time, and would be kept by one that
//! stays open.

mod complaints;
mod exchange;
mod parameters;
mod places;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use blocking::unblock;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, StatusCode, Uri};
use pronghorn_client::{Error, Phase};
use pronghorn_engine::{Body, Connector, Error as Broken};

use self::complaints::Complaints;
pub(crate) use self::complaints::Listener;
pub(crate) use self::exchange::Content;
use self::exchange::{Exchange, Stream, broken};
pub(crate) use self::parameters::{Asked, Script};
use self::places::Places;
use crate::config::{ServerAddress, Upstream};
use crate::in_time::in_time;

/// The port of FastCGI where none is named; that of PHP-FPM.
const PORT: u16 = 9000;

/// By such fields applications have some servers send a file in place of their content. Clients would get the path, and nothing else.
const LEAVING: [&str; 3] = ["x-accel-redirect", "x-sendfile", "x-lighttpd-send-file"];

/// Asks the servers of one upstream, on one worker.
pub(crate) struct Client {
    connector: Connector,
    connect_timeout: Duration,
    head_timeout: Duration,
    body_timeout: Duration,
    /// By number of the server.
    places: Vec<Places>,
    listener: Listener,
}

/// A request, for one server.
pub(crate) struct Request<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) content: Body,
}

impl Client {
    /// `listener` hears what applications have to complain of.
    pub(crate) fn new(connector: &Connector, settings: &Upstream, listener: Listener) -> Self {
        Self {
            connector: connector.clone(),
            connect_timeout: settings.connect_timeout.0,
            head_timeout: settings.head_timeout.0,
            body_timeout: settings.body_timeout.0,
            places: settings.servers.iter().map(|_| Places::new(settings.connections, settings.waiting)).collect(),
            listener,
        }
    }

    /// Asks the server of this number.
    pub(crate) async fn ask(
        &self,
        number: usize,
        server: &ServerAddress,
        request: Request<'_>,
    ) -> Result<http::Response<Option<Box<Content>>>, Error> {
        let Request { asked, method, uri, headers, content } = request;
        let handle = self.connector.handle();
        let place = self.places[number].take(handle, self.connect_timeout, server.authority.as_str()).await?;
        let connected = in_time(handle, self.connect_timeout, self.connect(server)).await;
        let stream = connected.unwrap_or(Err(Error::TimedOut(Phase::Connect)))?;
        let parameters = parameters::of(asked, method, uri, headers);
        let mut exchange =
            Exchange::new(stream, handle.clone(), &parameters, content, Complaints::new(self.listener.clone(), server.clone()));
        let mut response = exchange.head(self.head_timeout).await?;
        if let Some(name) = LEAVING.iter().find(|name| response.headers().contains_key(**name)) {
            let why = format!("it leaves the content to the server ({name}), which is not done here: have it send that itself");
            return Err(broken(Broken::Exchange(why)));
        }
        if response.status() == StatusCode::NO_CONTENT {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        let has_content = *method != Method::HEAD && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        // Its head was looked at.
        let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Ok(response.map(|first| has_content.then(|| Box::new(Content::new(exchange, self.body_timeout, first, length, place)))))
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
        let nowhere = || Broken::Exchange(format!("{} has no address", server.authority.host()));
        Err(broken(last.unwrap_or_else(nowhere)))
    }
}

async fn addresses(server: &ServerAddress) -> Result<Vec<SocketAddr>, Error> {
    let (host, port) = (server.authority.host().trim_matches(['[', ']']), server.authority.port_u16().unwrap_or(PORT));
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let name = host.to_owned();
    let found = unblock(move || std::net::ToSocketAddrs::to_socket_addrs(&(name, port)).map(Iterator::collect)).await;
    found.map_err(|source| Error::Lookup { host: host.to_owned(), source: Arc::new(source) })
}
