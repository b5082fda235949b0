//! The options of the commands that send requests.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use pronghorn_engine::{Congestion, Protocol};
use rustls::ClientConfig;

use crate::failure::{Failure, Kind};
use crate::{client_tls, key_log};

/// Options of a request and its connection, shared by `pronghorn get` and `pronghorn load`.
#[derive(Args)]
pub(crate) struct RequestArgs {
    /// HTTP version to use: 1.1, 2 or 3 [default: 2 or 1.1, as the server prefers]
    #[arg(long, value_name = "VERSION", value_parser = protocol)]
    pub(crate) http: Option<Protocol>,

    /// Request method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<Method>,

    /// Header field to send, as 'name: value'. Repeat for more
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,

    /// File to send as the request body
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,

    /// Connect to this host and port instead of the URL's
    #[arg(long, value_name = "HOST:PORT")]
    connect_to: Option<String>,

    /// Accept any certificate
    #[arg(long)]
    no_verify: bool,

    /// Trust the certificates of this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "no_verify")]
    cacert: Option<PathBuf>,

    /// Congestion controller for sent data, over QUIC and TCP: cubic, newreno or bbr [default:
    /// cubic over QUIC, the system's over TCP]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<Congestion>,
}

impl RequestArgs {
    /// Returns the TLS configuration, with a key log if the environment asks for one.
    pub(crate) fn tls(&self) -> Result<ClientConfig, Failure> {
        let mut tls = client_tls::config(self.cacert.as_deref(), !self.no_verify)?;
        if let Some(key_log) = key_log::from_environment()? {
            tls.key_log = key_log;
        }
        Ok(tls)
    }

    /// Returns the content of `--data`.
    pub(crate) fn content(&self) -> Result<Option<Bytes>, Failure> {
        let Some(path) = &self.data else { return Ok(None) };
        std::fs::read(path).map(|content| Some(content.into())).map_err(|error| {
            Failure::new(Kind::Missing, format_args!("cannot read {}: {error}", path.display()))
                .with_hint("--data expects the name of a file")
        })
    }

    /// Returns the method of a request that has content or not.
    pub(crate) fn method(&self, with_content: bool) -> Method {
        let default = if with_content { Method::POST } else { Method::GET };
        self.method.clone().unwrap_or(default)
    }

    /// Returns the given header fields.
    pub(crate) fn headers(&self) -> HeaderMap {
        self.header.iter().cloned().collect()
    }

    /// Resolves the host to connect to: the given one, or the origin's.
    pub(crate) fn remotes(&self, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
        let connect_to = self.connect_to.as_deref();
        let resolved = match connect_to {
            Some(address) => address.to_socket_addrs(),
            None => (origin.host(), origin.port()).to_socket_addrs(),
        };
        let name = connect_to.unwrap_or(origin.host());
        match resolved.map(Iterator::collect::<Vec<_>>) {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(Failure::new(Kind::UnknownHost, format_args!("{name} has no address"))),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(Failure::new(Kind::Usage, format_args!("{name}: {error}"))
                    .with_hint("--connect-to expects HOST:PORT"))
            }
            Err(error) => {
                let hint = match connect_to {
                    Some(_) => "check the name given with --connect-to, and this machine's DNS",
                    None => {
                        "check the name's spelling and this machine's DNS, or give an address with \
                            --connect-to"
                    }
                };
                Err(Failure::new(Kind::UnknownHost, format_args!("cannot resolve {name}: {error}"))
                    .with_hint(hint))
            }
        }
    }
}

/// Scheme, host and port of a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) secure: bool,
    pub(crate) authority: Authority,
}

impl Origin {
    pub(crate) fn of(uri: &Uri) -> Result<Self, Failure> {
        let bad = || {
            Failure::new(Kind::Usage, format_args!("invalid URL {uri}"))
                .with_hint("use https://HOST/ or http://HOST/")
        };
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(bad()),
        };
        Ok(Self { secure, authority: uri.authority().cloned().ok_or_else(bad)? })
    }

    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.secure { 443 } else { 80 })
    }
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "1.1" => Ok(Protocol::Http1),
        "2" => Ok(Protocol::Http2),
        "3" => Ok(Protocol::Http3),
        _ => Err("use 1.1, 2 or 3".to_owned()),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("use the form 'name: value'")?;
    let name = name.trim().parse().map_err(|_| format!("invalid header name {name:?}"))?;
    let value = value.trim().parse().map_err(|_| format!("invalid header value {value:?}"))?;
    Ok((name, value))
}
