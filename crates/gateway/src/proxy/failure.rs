//! Failed requests to upstreams: the response to the client, and the reason in the log.

use std::fmt::{self, Display};

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use pronghorn_client::{Error, Phase};
use pronghorn_engine::{BodyError, Error as Broken, Response};

use super::failure_log::Cause;
use crate::config::Upstream;
use crate::responses::text;

/// Returns the response to the client if the server did not respond.
pub(super) fn refusal(error: &Error) -> Response {
    let message = match error {
        Error::Busy(_) | Error::TimedOut(Phase::Queue) => "the upstream is busy\n",
        Error::TimedOut(Phase::Connect) => "timed out connecting to the upstream\n",
        Error::TimedOut(_) => "the upstream did not respond in time\n",
        Error::Exchange(error) if matches!(**error, Broken::HeadTooLarge(_)) => {
            "the upstream's response headers are too large\n"
        }
        _ => "the upstream cannot be reached or did not respond\n",
    };
    match status(error) {
        status @ StatusCode::SERVICE_UNAVAILABLE => {
            text(status, message).with_header(RETRY_AFTER, HeaderValue::from_static("1"))
        }
        status => text(status, message),
    }
}

pub(super) fn status(error: &Error) -> StatusCode {
    match error {
        Error::Busy(_) | Error::TimedOut(Phase::Queue) => StatusCode::SERVICE_UNAVAILABLE,
        Error::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

impl Cause {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Lookup { .. } => Self::Lookup,
            Error::TimedOut(Phase::Connect) => Self::ConnectTimeout,
            Error::TimedOut(Phase::Queue) => Self::QueueTimeout,
            Error::TimedOut(Phase::Head) => Self::HeadTimeout,
            Error::TimedOut(Phase::Body) => Self::BodyTimeout,
            Error::Busy(_) => Self::Busy,
            Error::Exchange(error) => Self::of_exchange(error),
            Error::Ended => Self::Closed,
            _ => Self::Malformed,
        }
    }

    fn of_exchange(error: &pronghorn_engine::Error) -> Self {
        use pronghorn_engine::Error as E;
        match error {
            E::Connect { .. } => Self::Connect,
            E::Handshake { .. } => Self::Handshake,
            E::Unsupported(_) | E::NoUpgrade(_) => Self::Unsupported,
            E::Refused(_) => Self::Refused,
            E::Reset(_) => Self::Reset,
            E::Closed(_) => Self::Closed,
            E::Unreachable(_) => Self::Lost,
            E::HeadTooLarge(_) => Self::HeadTooLarge,
            E::Exchange(_) => Self::Malformed,
        }
    }
}

/// Converts the error that cut a response body off.
pub(super) fn of_content(error: &BodyError) -> Error {
    match error.downcast_ref::<Error>() {
        Some(error) => error.clone(),
        None => pronghorn_engine::Error::from(error).into(),
    }
}

/// Formats why a server did not respond, with the configuration key of the exceeded limit.
pub(super) struct Reason<'a>(pub(super) &'a Error, pub(super) &'a Upstream);

impl Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error, Upstream { connect_timeout, head_timeout, body_timeout, waiting, .. }) =
            self;
        let (key, time) = match error {
            Error::TimedOut(Phase::Connect | Phase::Queue) => ("connect_timeout", connect_timeout),
            Error::TimedOut(Phase::Head) => ("head_timeout", head_timeout),
            Error::TimedOut(Phase::Body) => ("body_timeout", body_timeout),
            Error::Busy(_) => return write!(f, "{error} (waiting = {waiting})"),
            Error::Exchange(broken)
                if matches!(**broken, Broken::HeadTooLarge(_)) && !self.1.speaks_fastcgi() =>
            {
                return write!(f, "{error} (field_section_bytes and field_lines in [limits])");
            }
            _ => return error.fmt(f),
        };
        write!(f, "{error} ({key} = {})", humantime::format_duration(time.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_names_the_key_that_it_is_about() {
        let mut upstream = Upstream::of("http://10.0.0.1:80".parse().expect("an address"));
        upstream.head_timeout = "90s".parse().expect("a time");
        let reason = |error: Error| Reason(&error, &upstream).to_string();
        assert_eq!(
            reason(Error::TimedOut(Phase::Connect)),
            "no connection in time (connect_timeout = 10s)"
        );
        assert_eq!(
            reason(Error::TimedOut(Phase::Queue)),
            "no free connection in time (connect_timeout = 10s)"
        );
        assert_eq!(
            reason(Error::TimedOut(Phase::Head)),
            "no response in time (head_timeout = 1m 30s)"
        );
        assert_eq!(
            reason(Error::Busy("a".into())),
            "too many requests to a wait for a connection (waiting = 1024)"
        );
    }

    #[test]
    fn content_has_the_causes_that_heads_have() {
        let of = |error: BodyError| Cause::of(&of_content(&error));
        assert_eq!(of(Error::TimedOut(Phase::Body).into()), Cause::BodyTimeout);
        assert_eq!(of("something else".into()), Cause::Malformed);
    }
}
