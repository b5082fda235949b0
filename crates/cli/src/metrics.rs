//! Counters in the text format of Prometheus.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use pronghorn_engine::Stats;

use crate::running::Running;
use crate::serving;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters that are one series of several: counter, name, label, what the name means.
const SERIES: [(&str, &str, &str, &str); 15] = [
    ("tcp_accepted", "connections_accepted_total", "transport=\"tcp\"", ACCEPTED),
    ("quic_accepted", "connections_accepted_total", "transport=\"quic\"", ACCEPTED),
    ("tcp_open", "connections_open", "transport=\"tcp\"", OPEN),
    ("quic_open", "connections_open", "transport=\"quic\"", OPEN),
    ("tcp_resumed", "tls_resumed_total", "transport=\"tcp\"", RESUMED),
    ("quic_resumed", "tls_resumed_total", "transport=\"quic\"", RESUMED),
    ("tcp_timed_out", "connections_timed_out_total", "transport=\"tcp\"", TIMED_OUT),
    ("quic_timed_out", "connections_timed_out_total", "transport=\"quic\"", TIMED_OUT),
    ("requests_http1", "requests_total", "protocol=\"http1\"", REQUESTS),
    ("requests_http2", "requests_total", "protocol=\"http2\"", REQUESTS),
    ("requests_http3", "requests_total", "protocol=\"http3\"", REQUESTS),
    ("early_data_refused_off", "early_data_refused_total", "reason=\"off\"", EARLY_REFUSED),
    ("early_data_refused_no_session", "early_data_refused_total", "reason=\"no_session\"", EARLY_REFUSED),
    ("early_data_refused_stale", "early_data_refused_total", "reason=\"stale\"", EARLY_REFUSED),
    ("requests_too_early", "early_data_requests_refused_total", "", "Requests in early data whose method is not safe, answered 425."),
];
const ACCEPTED: &str = "Connections accepted.";
const OPEN: &str = "Connections open now, those in their handshake included.";
const RESUMED: &str = "Connections that resumed a TLS session.";
const TIMED_OUT: &str = "Connections that ended because nothing came from the peer.";
const REQUESTS: &str = "Requests.";
const EARLY_REFUSED: &str = "Connections whose early data (0-RTT) was refused: none is taken; the session is not there; the ticket is too old or for another protocol.";

/// A name with all its series.
struct Family {
    name: String,
    help: String,
    kind: &'static str,
    /// Labels and value.
    series: Vec<(String, u64)>,
}

/// All metrics of a server.
pub(crate) fn exposition(running: &Running) -> String {
    let totals = serving::totals(&running.stats, None);
    let mut families = engine(|counter| totals.get(counter).and_then(serde_json::Value::as_u64).unwrap_or(0));
    families.extend(own(running));
    let mut text = String::new();
    for Family { name, help, kind, series } in &families {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP pronghorn_{name} {help}\n# TYPE pronghorn_{name} {kind}");
        for (labels, value) in series {
            let _ = match labels.as_str() {
                "" => writeln!(text, "pronghorn_{name} {value}"),
                labels => writeln!(text, "pronghorn_{name}{{{labels}}} {value}"),
            };
        }
    }
    text
}

/// The engine's counters, in the order of their declaration.
fn engine(value: impl Fn(&str) -> u64) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for (counter, meaning) in Stats::meanings() {
        let series = SERIES.iter().find(|(of, ..)| *of == counter);
        let (name, labels, help) = match series {
            Some((_, name, labels, help)) => ((*name).to_owned(), *labels, (*help).to_owned()),
            None => (format!("{counter}_total"), "", meaning),
        };
        let one = (labels.to_owned(), value(counter));
        if let Some(family) = families.iter_mut().find(|family| family.name == name) {
            family.series.push(one);
        } else {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            families.push(Family { name, help, kind, series: vec![one] });
        }
    }
    families
}

/// What is known beside the workers.
fn own(running: &Running) -> Vec<Family> {
    let held = running.identity.as_ref().and_then(|identity| identity.sessions()).map(|sessions| sessions.values()).unwrap_or_default();
    let held = |name: &str| held.iter().find(|(one, _)| *one == name).map_or(0, |(_, value)| *value);
    let started = running.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let sites = running.gateway.sites();
    let http3 = |site: &pronghorn_gateway::SiteState| {
        (format!("site=\"{}\"", site.hosts.first().map(String::as_str).unwrap_or_default()), u64::from(site.http3))
    };
    let values = [
        vec![(format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1)],
        vec![(String::new(), started)],
        vec![(String::new(), running.stats.len() as u64)],
        vec![("result=\"success\"".to_owned(), running.reloads.get()), ("result=\"failure\"".to_owned(), running.failed_reloads.get())],
        sites.iter().map(http3).collect(),
        vec![(String::new(), held("sessions_held"))],
        vec![(String::new(), held("sessions_bytes"))],
        kernel_drops(&running.listeners),
    ];
    let family = |((name, kind, help), series): (&(&str, &'static str, &str), _)| Family {
        name: (*name).to_owned(),
        help: (*help).to_owned(),
        kind,
        series,
    };
    OWN.iter().zip(values).map(family).collect()
}

/// Name, type, meaning; in the order of their values above.
const OWN: [(&str, &str, &str); 8] = [
    ("build_info", "gauge", "1, with the version as its label."),
    ("start_time_seconds", "gauge", "When the server was started, in seconds since 1970."),
    ("workers", "gauge", "Threads that serve."),
    ("reloads_total", "counter", "Reloads of the configuration."),
    ("site_http3", "gauge", "Whether the site, named by its first host, is served over HTTP/3 now: 1 or 0."),
    ("tls_sessions_held", "gauge", "TLS sessions stored now, so that clients may resume them."),
    ("tls_sessions_bytes", "gauge", "Bytes of the TLS sessions stored now."),
    (
        "kernel_udp_drops_total",
        "counter",
        "Datagrams that the kernel dropped because the buffer of a UDP socket was full, by port; sockets of other servers on the port in this \
         network namespace are counted too, closed ones no more.",
    ),
];

fn kernel_drops(listeners: &[(SocketAddr, bool)]) -> Vec<(String, u64)> {
    let tables: Vec<_> =
        ["/proc/self/net/udp", "/proc/self/net/udp6"].iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let mut seen = HashSet::new();
    let ports = listeners.iter().filter(|(_, is_secure)| *is_secure).map(|(address, _)| address.port()).filter(|port| seen.insert(*port));
    ports.map(|port| (format!("port=\"{port}\""), tables.iter().map(|table| drops_of(table, port)).sum())).collect()
}

/// The last column of the sockets on a port, in a table as the kernel prints it.
fn drops_of(table: &str, port: u16) -> u64 {
    let drops = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let (_, bound) = columns.nth(1)?.rsplit_once(':')?;
        let is_meant = u16::from_str_radix(bound, 16) == Ok(port);
        is_meant.then(|| columns.next_back()?.parse::<u64>().ok()).flatten()
    };
    table.lines().filter_map(drops).sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const HEAD: &str = "# Metrics\n\n`GET /metrics` of the admin API ([operations.md](operations.md)) answers in the text format of Prometheus. Counters \
                        are summed over the workers, begin at 0 when the\nserver starts and never go down. Generated: `UPDATE_DOCS=1 cargo test -p \
                        pronghorn-cli metrics` writes this page.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n";

    #[test]
    fn metrics_in_the_documentation_are_those_of_the_program() {
        let mut wanted = HEAD.to_owned();
        for Family { name, help, kind, series } in engine(|_| 0) {
            let labels: Vec<_> =
                series.iter().map(|(labels, _)| labels).filter(|labels| !labels.is_empty()).map(|labels| format!("`{labels}`")).collect();
            writeln!(wanted, "| `pronghorn_{name}` | {kind} | {} | {help} |", labels.join(", ")).expect("a string takes all");
        }
        for ((name, kind, help), labels) in
            OWN.iter().zip(["`version`", "", "", "`result`: `success`, `failure`", "`site`", "", "", "`port`"])
        {
            writeln!(wanted, "| `pronghorn_{name}` | {kind} | {labels} | {help} |").expect("a string takes all");
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &wanted).expect("write");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == wanted, "docs/gateway/metrics.md is not up to date: run with UPDATE_DOCS=1");
    }

    #[test]
    fn each_series_is_of_a_counter_that_is_there() {
        let known: HashSet<_> = Stats::meanings().into_iter().map(|(name, _)| name).collect();
        for (counter, ..) in SERIES {
            assert!(known.contains(counter), "{counter}");
        }
        assert!(known.len() > 50);
    }

    #[test]
    fn kernel_drops_are_those_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                     1: 0100007F:01BB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 27 2 0000000000000000 7\n\
                     2: 0100007F:01BB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 28 2 0000000000000000 5\n\
                     3: 0100007F:01BC 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 29 2 0000000000000000 100\n";
        assert_eq!((drops_of(table, 443), drops_of(table, 444), drops_of(table, 80)), (12, 100, 0));
    }
}
