//! States and problems as JSON, for the admin API.

use std::time::SystemTime;

use pronghorn_gateway::config::Problem;
use pronghorn_gateway::{CertificateState, ServerCondition, ServerState, SiteState};
use serde_json::{Value, json};

pub(crate) fn site(site: &SiteState) -> Value {
    json!({
        "hosts": site.hosts,
        "tls": site.is_secure,
        "http3": site.http3,
        "http3_configured": site.configured_http3,
        "alt_svc_clear": site.alt_svc_clear,
    })
}

pub(crate) fn upstream_server(server: &ServerState) -> Value {
    let state = match server.condition {
        ServerCondition::Up => "up",
        ServerCondition::Ejected => "ejected",
        ServerCondition::Down => "down",
    };
    json!({ "upstream": server.upstream, "server": server.server, "state": state })
}

pub(crate) fn certificate(certificate: &CertificateState) -> Value {
    let time = |time: SystemTime| humantime::format_rfc3339_seconds(time).to_string();
    let mut value =
        json!({ "hosts": certificate.hosts, "valid_until": certificate.until.map(time) });
    if let Some(order) = &certificate.order {
        value["order"] = json!({
            "running": order.is_running,
            "next": order.next.map(time),
            "failures": order.failures,
            "error": order.error,
        });
    }
    value
}

pub(crate) fn problem(problem: &Problem) -> Value {
    json!({
        "file": problem.file.display().to_string(),
        "line": problem.position.map(|(line, _)| line),
        "column": problem.position.map(|(_, column)| column),
        "message": problem.message,
        "hint": problem.hint,
        "text": problem.to_string(),
    })
}
