//! Requests that arrive over a transport on which their site is not served.

use http::header::{ALT_SVC, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{Protocol, Request, Response};

use crate::config::ClearText;
use crate::responses::text;
use crate::routing::site_plan::SitePlan;

impl SitePlan {
    /// Returns the response to a request over a transport on which the site is not served.
    pub(super) fn refusal(&self, request: &Request, https_port: Option<u16>) -> Option<Response> {
        let peer = &request.peer;
        if peer.secure && !self.is_secure {
            return Some(text(
                StatusCode::MISDIRECTED_REQUEST,
                "the site is not served over TLS\n",
            ));
        }
        if peer.protocol == Protocol::Http3 && !self.switches.http3() {
            let answer =
                text(StatusCode::MISDIRECTED_REQUEST, "the site is not served over HTTP/3\n");
            return Some(answer.with_header(ALT_SVC, HeaderValue::from_static("clear")));
        }
        if peer.secure || !self.is_secure || self.clear_text == ClearText::Serve {
            return None;
        }
        let host = request.uri.host()?;
        let target = request.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let location = match https_port {
            Some(443) | None => format!("https://{host}{target}"),
            Some(port) => format!("https://{host}:{port}{target}"),
        };
        match HeaderValue::try_from(location) {
            Ok(location) if self.clear_text == ClearText::Redirect => Some(
                text(StatusCode::PERMANENT_REDIRECT, "this site is served over HTTPS\n")
                    .with_header(LOCATION, location),
            ),
            _ => Some(text(StatusCode::MISDIRECTED_REQUEST, "the site is served over TLS only\n")),
        }
    }
}
