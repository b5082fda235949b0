//! Failures to connect to a server, and hints on what to do about them.

use std::time::Duration;

use pronghorn_engine::{
    CongestionError, Connection, Connector, Error, Protocol, Resumption, Target,
};

use crate::failure::{Failure, Kind};
use crate::serving::congestion_failure;

/// Time without an answer over UDP after which the server is tried over TCP too.
const SILENCE: Duration = Duration::from_secs(3);
/// Further time to wait over UDP after the server has answered over TCP: a server that is merely
/// slow answers both at the same time.
const FURTHER_SILENCE: Duration = Duration::from_secs(1);

/// TLS alerts (RFC 8446 section 6) that servers send for a name without a certificate:
/// `access_denied`, as rustls sends it, and `unrecognized_name`; each with its code over QUIC and
/// its name over TCP.
const NO_SUCH_NAME: [&str; 4] = ["error 49:", "AccessDenied", "error 112:", "UnrecognisedName"];
const ALERTS: [&str; 2] =
    ["aborted by peer: the cryptographic handshake failed", "received fatal alert"];

/// Connects to `target`. Stops waiting for a server that is silent over UDP once it has answered
/// over TCP.
pub(crate) async fn connect(connector: &Connector, target: &Target) -> Result<Connection, Failure> {
    let failure = |error: Error| connect_failure(&error, target);
    if target.protocol != Some(Protocol::Http3) {
        return connector.connect(target).await.map_err(failure);
    }
    let mut over_udp = std::pin::pin!(connector.connect(target));
    tokio::select! {
        connection = &mut over_udp => return connection.map_err(failure),
        () = connector.handle().sleep(SILENCE) => {}
    }
    let answers = tokio::select! {
        connection = &mut over_udp => return connection.map_err(failure),
        answers = answers_over_tcp(connector, target) => answers,
    };
    if !answers {
        return over_udp.await.map_err(failure);
    }
    tokio::select! {
        connection = &mut over_udp => connection.map_err(failure),
        () = connector.handle().sleep(FURTHER_SILENCE) => {
            let message = format_args!("{} does not answer over UDP, but does over TCP", target.remote);
            Err(Failure::new(Kind::Unavailable, message)
                .with_hint("either a firewall drops UDP to this port, or HTTP/3 is off there: try \
                    --http 2"))
        }
    }
}

/// Returns whether the server, and not only its system, answers over TCP. Any answer counts.
async fn answers_over_tcp(connector: &Connector, target: &Target) -> bool {
    let target = Target { protocol: None, resumption: Resumption::Off, ..target.clone() };
    matches!(
        connector.connect(&target).await,
        Ok(_) | Err(Error::Handshake { .. } | Error::Unsupported(_))
    )
}

fn connect_failure(error: &Error, target: &Target) -> Failure {
    let Error::Handshake { reason, .. } = error else { return exchange_failure(error) };
    if !is_refused_name(reason) {
        return exchange_failure(error);
    }
    let (name, remote) = (&target.server_name, target.remote);
    if target.protocol == Some(Protocol::Http3) {
        Failure::new(
            Kind::Protocol,
            format_args!("{remote} serves no site {name} over HTTP/3 ({reason})"),
        )
        .with_hint("HTTP/3 is off for it, or its certificate is not available yet: try --http 2")
    } else {
        Failure::new(
            Kind::Protocol,
            format_args!("{remote} has no certificate for {name} ({reason})"),
        )
        .with_hint("the server has no site of that name, or its certificate is not available yet")
    }
}

fn is_refused_name(reason: &str) -> bool {
    ALERTS.iter().any(|alert| reason.contains(alert))
        && NO_SUCH_NAME.iter().any(|alert| reason.contains(alert))
}

pub(crate) fn exchange_failure(error: &Error) -> Failure {
    match error {
        Error::Connect { source, .. } => {
            let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<CongestionError>());
            match inner {
                Some(error) => congestion_failure(error, "--congestion"),
                None => Failure::new(Kind::Unavailable, error)
                    .with_hint("check that the server is running and the port is correct"),
            }
        }
        Error::Handshake { reason, .. } if reason.contains("invalid peer certificate") => {
            Failure::new(Kind::Protocol, error).with_hint(certificate_hint(reason))
        }
        Error::Handshake { reason, .. } if is_refused_name(reason) => {
            Failure::new(Kind::Protocol, error).with_hint(
                "the server has no site of that name over this version of HTTP, or its certificate \
                    is not available yet: try another version with --http",
            )
        }
        Error::Handshake { reason, .. } if reason.contains("in time") => {
            Failure::new(Kind::TimedOut, error)
        }
        Error::Handshake { reason, .. } if reason.contains("InvalidContentType") => {
            Failure::new(Kind::Protocol, error)
                .with_hint("the port may use clear text: try http://")
        }
        Error::Exchange(reason) if reason.contains("exceeds the peer's limit") => {
            Failure::new(Kind::Protocol, error).with_hint(
                "the request head is too large for the server: send fewer or shorter header \
                    fields",
            )
        }
        Error::Unsupported(_) => {
            Failure::new(Kind::Protocol, error).with_hint("try another version with --http")
        }
        Error::Handshake { .. }
        | Error::Refused(_)
        | Error::Reset(_)
        | Error::Closed(_)
        | Error::Unreachable(_)
        | Error::HeadTooLarge(_)
        | Error::Exchange(_)
        | Error::NoUpgrade(_) => Failure::new(Kind::Protocol, error),
    }
}

fn certificate_hint(reason: &str) -> &'static str {
    if reason.contains("not valid for name") {
        "use a name that the certificate covers, or accept any certificate with --no-verify"
    } else if reason.contains("expired") || reason.contains("not valid yet") {
        "renew the server's certificate, check this machine's clock, or accept any certificate \
            with --no-verify"
    } else {
        "trust the authority with --cacert, or accept any certificate with --no-verify"
    }
}
