//! The human-readable report of `pronghorn load`.

use std::fmt::Write as _;

use pronghorn_load::{Latency, Report};

use crate::plural::counted;

/// Returns the report as lines of text.
pub(crate) fn table(report: &Report) -> String {
    let mut text = String::new();
    write(&mut text, report).expect("invariant: writing to a string cannot fail");
    text
}

fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let plan = &report.plan;
    let spoken: Vec<_> = report.connections.protocols.keys().map(String::as_str).collect();
    let spoken = if spoken.is_empty() {
        plan.protocol.clone().unwrap_or_default()
    } else {
        spoken.join(", ")
    };
    let what = if plan.websocket { "WebSocket" } else { &plan.method };
    writeln!(text, "{what} {}{}", plan.urls[0], more(plan.urls.len()))?;
    let counts = [
        (plan.connections, "connection"),
        (plan.streams, "stream"),
        (report.threads.len(), "thread"),
    ];
    let [connections, streams, threads] = counts.map(|(count, what)| counted(count, what));
    write!(text, "{spoken}, {connections} of {streams}, {threads}")?;
    let unit = if plan.websocket { "messages" } else { "requests" };
    if plan.connection_use == "one_request" {
        write!(text, ", one request on each connection")?;
    }
    if let Some(rate) = plan.rate_per_second {
        write!(text, ", {rate} {unit} per second")?;
    }
    let ended = if report.interrupted { ", interrupted" } else { "" };
    writeln!(
        text,
        "\nmeasured {:.3} s after {} s of warm-up{ended}\n",
        report.measured_seconds, plan.warm_up_seconds
    )?;

    let requests = &report.requests;
    writeln!(text, "{unit:<12} {} ({:.1} /s)", requests.begun, requests.per_second)?;
    let status = requests.status;
    let classes = [
        ("1xx", status.informational),
        ("2xx", status.successful),
        ("3xx", status.redirection),
        ("4xx", status.client_error),
        ("5xx", status.server_error),
    ];
    let counted: Vec<_> = classes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| format!("{class} {count}"))
        .collect();
    writeln!(
        text,
        "  answered   {}",
        if counted.is_empty() { "none".to_owned() } else { counted.join("  ") }
    )?;
    let errors = &requests.errors;
    let kinds = [
        ("connect", errors.connect),
        ("handshake", errors.handshake),
        ("refused", errors.refused),
        ("reset", errors.reset),
        ("closed", errors.closed),
        ("timed_out", errors.timed_out),
        ("protocol", errors.protocol),
    ];
    for (kind, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
        writeln!(
            text,
            "  failed     {kind} {count}: {}",
            errors.first.get(kind).map_or("", String::as_str)
        )?;
    }
    let others = [
        ("abandoned", requests.given_up),
        ("not sent", requests.not_started),
        ("retried", requests.resent),
    ];
    for (name, count) in others.into_iter().filter(|(_, count)| *count > 0) {
        writeln!(text, "  {name:<10} {count}")?;
    }
    let body = report.body;
    writeln!(
        text,
        "body         {} received ({}/s), {} sent\n",
        bytes(body.received_bytes as f64),
        bytes(body.received_bytes_per_second),
        bytes(body.sent_bytes as f64)
    )?;

    writeln!(
        text,
        "latency    {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "p50", "p90", "p99", "p99.9", "max", "mean"
    )?;
    let latency = &report.latency_us;
    for (name, latency) in [
        ("head", latency.head),
        ("response", latency.response),
        ("connect", latency.connect),
        ("late", latency.schedule_lag),
    ] {
        percentiles(text, name, latency)?;
    }

    let connections = &report.connections;
    write!(
        text,
        "\nconnections  {} opened, {} attempts failed",
        connections.opened, connections.failed
    )?;
    if plan.resumption != "off" {
        let (accepted, refused) = (connections.early_data_accepted, connections.early_data_refused);
        write!(
            text,
            ", {} resumed, early data accepted on {accepted} and refused on {refused}",
            connections.resumed
        )?;
    }
    writeln!(text)?;
    if plan.websocket {
        let websockets = report.websockets;
        writeln!(
            text,
            "websockets   {} opened, {} not granted, {} ended",
            websockets.opened, websockets.failed, websockets.ended
        )?;
    }
    let transport = report.transport;
    let lost = if transport.sent_packets == 0 {
        0.0
    } else {
        transport.lost_packets as f64 / transport.sent_packets as f64 * 100.0
    };
    writeln!(
        text,
        "transport    {} sent, {} received, {} of {} packets lost ({lost:.2} %)",
        bytes(transport.sent_bytes as f64),
        bytes(transport.received_bytes as f64),
        transport.lost_packets,
        transport.sent_packets
    )?;
    let busy: Vec<_> =
        report.threads.iter().map(|thread| format!("{:.0} %", thread.cpu_share * 100.0)).collect();
    writeln!(text, "generator    {} busy", busy.join(", "))
}

fn more(urls: usize) -> String {
    if urls > 1 { format!(" and {} more", urls - 1) } else { String::new() }
}

fn percentiles(text: &mut String, name: &str, latency: Latency) -> std::fmt::Result {
    if latency.count == 0 {
        return Ok(());
    }
    write!(text, "  {name:<9}")?;
    for value in [latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max, latency.mean] {
        write!(text, "{:>9} ", time(value))?;
    }
    // No trailing spaces.
    text.truncate(text.trim_end().len());
    writeln!(text)
}

/// Formats a time with three digits or more, in a suitable unit.
fn time(microseconds: f64) -> String {
    match microseconds {
        value if value < 1e3 => format!("{value:.0} us"),
        value if value < 1e4 => format!("{:.2} ms", value / 1e3),
        value if value < 1e6 => format!("{:.1} ms", value / 1e3),
        value => format!("{:.2} s", value / 1e6),
    }
}

fn bytes(count: f64) -> String {
    match count {
        count if count < 1e3 => format!("{count:.0} B"),
        count if count < 1e6 => format!("{:.1} kB", count / 1e3),
        count if count < 1e9 => format!("{:.1} MB", count / 1e6),
        count => format!("{:.2} GB", count / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suit_the_number() {
        for (microseconds, text) in [
            (0.0, "0 us"),
            (999.4, "999 us"),
            (1_234.0, "1.23 ms"),
            (45_678.0, "45.7 ms"),
            (2_500_000.0, "2.50 s"),
        ] {
            assert_eq!(time(microseconds), text);
        }
        for (count, text) in [
            (999.0, "999 B"),
            (1_500.0, "1.5 kB"),
            (2_500_000.0, "2.5 MB"),
            (3_000_000_000.0, "3.00 GB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
