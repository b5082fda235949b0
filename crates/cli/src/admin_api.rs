//! Responses of the admin API.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use pronghorn_gateway::{RetryError, Switch};
use serde_json::{Value, json};

use crate::configuration::MAX_PROBLEMS;
use crate::json::{problem, site};
use crate::metrics;
use crate::server_state::Running;

pub(crate) type Answer = Response<Full<Bytes>>;

/// List of endpoints, for error messages.
const ENDPOINTS: &str = "GET /status, POST /reload, POST /log/reopen, GET /metrics, POST \
    /certificates/{host}/retry, GET /sites, GET, PUT and DELETE /sites/{host}/http3, GET, PUT and \
    DELETE /sites/{host}/alt-svc-clear";

/// Answers an authorized request.
pub(crate) fn answer(running: &Running, parts: &Parts, content: &[u8]) -> Answer {
    let path = parts.uri.path();
    let method = &parts.method;
    match path {
        "/status" => only(method, "GET").unwrap_or_else(|| ok(&running.status())),
        "/sites" => only(method, "GET").unwrap_or_else(|| ok(&running.gateway.sites().iter().map(site).collect())),
        "/metrics" => only(method, "GET").unwrap_or_else(|| text(metrics::CONTENT_TYPE, metrics::exposition(running))),
        "/reload" => only(method, "POST").unwrap_or_else(|| match running.reload() {
            Ok(reloaded) => ok(&reloaded),
            Err(problems) => {
                let more = problems.len().saturating_sub(MAX_PROBLEMS);
                let problems: Vec<_> = problems.iter().take(MAX_PROBLEMS).map(problem).collect();
                json_answer(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    &json!({ "error": "invalid configuration; nothing has changed", "problems": problems, "more_problems": more }),
                )
            }
        }),
        "/log/reopen" => only(method, "POST").unwrap_or_else(|| match running.reopen_log() {
            Ok(is_file) => ok(&json!({ "reopened": is_file })),
            Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot reopen the \
                access log: {problem}")),
        }),
        _ if path.starts_with("/certificates/") => match path["/certificates/".len()..].strip_suffix("/retry") {
            Some(host) => only(method, "POST").unwrap_or_else(|| retried(running, &percent_decode_str(host).decode_utf8_lossy())),
            None => not_found(),
        },
        _ => match path.strip_prefix("/sites/").and_then(|rest| rest.split_once('/')) {
            Some((host, switch)) => switched(running, method, &percent_decode_str(host).decode_utf8_lossy(), switch, content),
            None => not_found(),
        },
    }
}

fn retried(running: &Running, host: &str) -> Answer {
    match running.gateway.retry_order(host) {
        Ok(()) => {
            log_line!("admin: ordering the certificate of {host} again");
            ok(&json!({ "host": host, "ordered": true }))
        }
        Err(problem @ RetryError::Unknown) => {
            let reason = "it has no site with tls = \"acme\"";
            error(StatusCode::NOT_FOUND, format!("{host}: {problem}: {reason}"))
        }
        Err(problem) => error(StatusCode::CONFLICT, format!("{host}: {problem}")),
    }
}

fn switched(
    running: &Running,
    method: &Method,
    host: &str,
    switch: &str,
    content: &[u8],
) -> Answer {
    let make: fn(Option<bool>) -> Switch = match switch {
        "http3" => Switch::Http3,
        "alt-svc-clear" => |clear| Switch::AltSvcClear(clear.unwrap_or(false)),
        _ => return not_found(),
    };
    let wanted = match *method {
        Method::GET => {
            let sites = running.gateway.sites();
            return match sites
                .iter()
                .find(|site| site.hosts.iter().any(|one| one.eq_ignore_ascii_case(host)))
            {
                Some(found) => ok(&site(found)),
                None => error(StatusCode::NOT_FOUND, format!("no site has the host {host:?}")),
            };
        }
        Method::PUT => match content.trim_ascii() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => return error(StatusCode::BAD_REQUEST, "the request body must be true or false"),
        },
        Method::DELETE => None,
        _ => return not_allowed("GET, PUT, DELETE"),
    };
    match running.gateway.switch(host, make(wanted)) {
        Ok(state) => {
            log_line!(
                "admin: {} {switch} of {host} {}",
                method,
                String::from_utf8_lossy(content.trim_ascii())
            );
            ok(&site(&state))
        }
        Err(problem @ pronghorn_gateway::SwitchError::Unknown(_)) => {
            error(StatusCode::NOT_FOUND, problem.to_string())
        }
        Err(problem @ pronghorn_gateway::SwitchError::NoTls(_)) => {
            error(StatusCode::CONFLICT, problem.to_string())
        }
    }
}

fn only(method: &Method, allowed: &'static str) -> Option<Answer> {
    (method != allowed).then(|| not_allowed(allowed))
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, format!("the method must be {allowed}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn not_found() -> Answer {
    error(StatusCode::NOT_FOUND, format!("unknown endpoint; the endpoints are {ENDPOINTS}"))
}

pub(crate) fn error(status: StatusCode, message: impl Into<String>) -> Answer {
    let mut answer = json_answer(status, &json!({ "error": message.into() }));
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

fn ok(value: &Value) -> Answer {
    json_answer(StatusCode::OK, value)
}

fn json_answer(status: StatusCode, value: &Value) -> Answer {
    let mut answer = text("application/json", format!("{value:#}\n"));
    *answer.status_mut() = status;
    answer
}

fn text(content_type: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
