//! Metrics in the text format of Prometheus.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pronghorn_engine::{Closer, Histogram, MemoryPressure, Stats};
use pronghorn_gateway::{Fleet, KeyState, ServerCondition, ServerState};

use crate::server_state::Running;
use crate::serving;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters that are one series of several: counter, name, label, description.
const SERIES: [(&str, &str, &str, &str); 29] = [
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
    (
        "early_data_refused_no_session",
        "early_data_refused_total",
        "reason=\"no_session\"",
        EARLY_REFUSED,
    ),
    ("early_data_refused_stale", "early_data_refused_total", "reason=\"stale\"", EARLY_REFUSED),
    (
        "requests_open",
        "requests_open",
        "",
        "Requests open now, over all protocols: their response has not ended.",
    ),
    (
        "tunnels_open",
        "tunnels_open",
        "",
        "Tunnels open now: requests that switched to another protocol, such as WebSocket.",
    ),
    ("tcp_handshakes_parked_now", "handshakes_parked", "transport=\"tcp\"", PARKED),
    ("quic_handshakes_parked_now", "handshakes_parked", "transport=\"quic\"", PARKED),
    ("tls_1_2", "tls_handshakes_total", "version=\"1.2\"", HANDSHAKES),
    ("tls_1_3", "tls_handshakes_total", "version=\"1.3\"", HANDSHAKES),
    ("tls_aes_128_gcm", "tls_ciphers_total", "cipher=\"AES-128-GCM\"", CIPHERS),
    ("tls_aes_256_gcm", "tls_ciphers_total", "cipher=\"AES-256-GCM\"", CIPHERS),
    ("tls_chacha20_poly1305", "tls_ciphers_total", "cipher=\"ChaCha20-Poly1305\"", CIPHERS),
    ("tls_x25519mlkem768", "tls_groups_total", "group=\"X25519MLKEM768\"", GROUPS),
    ("tls_x25519", "tls_groups_total", "group=\"X25519\"", GROUPS),
    ("tls_secp256r1", "tls_groups_total", "group=\"secp256r1\"", GROUPS),
    ("tls_secp384r1", "tls_groups_total", "group=\"secp384r1\"", GROUPS),
    ("tls_other_group", "tls_groups_total", "group=\"other\"", GROUPS),
    (
        "requests_too_early",
        "early_data_requests_refused_total",
        "",
        "Requests in early data that were answered 425.",
    ),
];
const ACCEPTED: &str = "Connections accepted.";
const OPEN: &str = "Connections open now, including those in their handshake.";
const PARKED: &str =
    "Handshakes that wait now, for a shared session or the signature of a slow key.";
const RESUMED: &str = "Connections that resumed a TLS session.";
const TIMED_OUT: &str = "Connections closed because the peer was silent.";
const REQUESTS: &str = "Requests.";
const HANDSHAKES: &str = "TLS handshakes completed, over TCP and QUIC, by version.";
const CIPHERS: &str = "TLS handshakes completed, by negotiated cipher.";
const GROUPS: &str =
    "TLS handshakes completed, by negotiated key exchange group. X25519MLKEM768 is post-quantum.";
const EARLY_REFUSED: &str = "Connections whose early data (0-RTT) was refused: early data is off, \
    the session is unknown, or the ticket is too old or for another protocol.";

/// A metric with all its series.
struct Family {
    name: String,
    help: String,
    kind: &'static str,
    /// Labels and value.
    series: Vec<(String, u64)>,
}

type Durations = fn(&Stats) -> &Histogram;

/// Durations: accessor, name, label, description.
const HISTOGRAMS: [(Durations, &str, &str, &str); 4] = [
    (|stats| &stats.tcp_handshake, "handshake_seconds", "transport=\"tcp\"", HANDSHAKE_TIME),
    (|stats| &stats.quic_handshake, "handshake_seconds", "transport=\"quic\"", HANDSHAKE_TIME),
    (|stats| &stats.quic_rtt, "quic_rtt_seconds", "", RTT),
    (|stats| &stats.turns, "worker_turn_seconds", "", TURNS),
];
const HANDSHAKE_TIME: &str =
    "Time from the acceptance of a connection to the end of its handshake.";
const RTT: &str = "Estimated round-trip times of QUIC connections: one sample per connection and \
    second with traffic, and one at its end.";

const TURNS: &str =
    "Time that turns of the workers took: how long one holds up all connections of its worker.";

const OFFERED: (&str, &str) =
    ("early_data_offered_total", "Connections whose client sent early data (0-RTT).");
const CLOSES: (&str, &str) = (
    "quic_closes_total",
    "QUIC connections closed, by side and code; codes have the names of their RFCs, and unused \
        codes are omitted. Timed-out connections are counted elsewhere.",
);

/// Returns all metrics of a server.
pub(crate) fn exposition(running: &Running) -> String {
    let totals = serving::totals(&running.stats, None);
    let mut families =
        engine(|counter| totals.get(counter).and_then(serde_json::Value::as_u64).unwrap_or(0));
    families.push(closes(&running.stats));
    families.extend(own(running));
    families.extend(shared_sessions(running.fleet.as_ref().map(Fleet::counters)));
    let mut text = String::new();
    for Family { name, help, kind, series } in &families {
        head(&mut text, name, help, kind);
        for (labels, value) in series {
            // Writing to a string cannot fail.
            let _ = match labels.as_str() {
                "" => writeln!(text, "pronghorn_{name} {value}"),
                labels => writeln!(text, "pronghorn_{name}{{{labels}}} {value}"),
            };
        }
    }
    histograms(&mut text, &running.stats);
    if let Some(latency) = running.fleet.as_ref().and_then(Fleet::latency) {
        head(&mut text, LOOKUPS.0, LOOKUPS.1, "histogram");
        let buckets = latency.cumulative().collect();
        histogram(&mut text, LOOKUPS.0, "", buckets, latency.count(), latency.sum());
    }
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP pronghorn_{name} {help}\n# TYPE pronghorn_{name} {kind}");
}

fn histograms(text: &mut String, stats: &[Arc<Stats>]) {
    let mut before = "";
    for (of, name, label, help) in HISTOGRAMS {
        if before != name {
            head(text, name, help, "histogram");
        }
        before = name;
        let mut buckets: Vec<(Duration, u64)> = Vec::new();
        let (mut count, mut sum) = (0, Duration::ZERO);
        for histogram in stats.iter().map(|stats| of(stats)) {
            count += histogram.count();
            sum += histogram.sum();
            for (place, (bound, value)) in histogram.cumulative().enumerate() {
                match buckets.get_mut(place) {
                    Some((_, total)) => *total += value,
                    None => buckets.push((bound, value)),
                }
            }
        }
        histogram(text, name, label, buckets, count, sum);
    }
}

/// Writes the series of one histogram.
fn histogram(
    text: &mut String,
    name: &str,
    label: &str,
    buckets: Vec<(Duration, u64)>,
    count: u64,
    sum: Duration,
) {
    let more = if label.is_empty() { String::new() } else { format!("{label},") };
    for (bound, value) in buckets {
        let bound = bound.as_secs_f64();
        let _ = writeln!(text, "pronghorn_{name}_bucket{{{more}le=\"{bound}\"}} {value}");
    }
    let labels = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
    let _ = writeln!(text, "pronghorn_{name}_bucket{{{more}le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "pronghorn_{name}_sum{labels} {}", sum.as_secs_f64());
    let _ = writeln!(text, "pronghorn_{name}_count{labels} {count}");
}

/// Returns the metrics of TLS sessions shared in Redis; none if they are not shared.
fn shared_sessions(counters: Option<Vec<(&'static str, u64)>>) -> Vec<Family> {
    let family = |((counter, help), (_, value)): ((&str, String), (_, u64))| {
        let is_gauge = counter.starts_with("shared_sessions_servers");
        Family {
            name: if is_gauge { counter.to_owned() } else { format!("{counter}_total") },
            help,
            kind: if is_gauge { "gauge" } else { "counter" },
            series: vec![(String::new(), value)],
        }
    };
    Fleet::meanings().into_iter().zip(counters.unwrap_or_default()).map(family).collect()
}

const LOOKUPS: (&str, &str) = (
    "shared_sessions_lookup_seconds",
    "Time that handshakes waited for a session in Redis, with those that timed out.",
);

fn closes(stats: &[Arc<Stats>]) -> Family {
    let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (by, code, count) in stats.iter().flat_map(|stats| stats.quic_closes.values()) {
        let by = match by {
            Closer::Local => "server",
            Closer::Peer => "client",
        };
        *sums.entry((by, code)).or_default() += count;
    }
    let used = sums.into_iter().filter(|(_, count)| *count > 0);
    let series =
        used.map(|((by, code), count)| (format!("by=\"{by}\",code=\"{code}\""), count)).collect();
    Family { name: CLOSES.0.to_owned(), help: CLOSES.1.to_owned(), kind: "counter", series }
}

/// Returns the engine's counters, in the order of their declaration.
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
    let offered =
        value("early_data_accepted") + REFUSED.iter().map(|reason| value(reason)).sum::<u64>();
    families.push(Family {
        name: OFFERED.0.to_owned(),
        help: OFFERED.1.to_owned(),
        kind: "counter",
        series: vec![(String::new(), offered)],
    });
    families
}

/// Counters of refused early data by reason; together with the accepted they are all that was
/// offered.
const REFUSED: [&str; 3] =
    ["early_data_refused_off", "early_data_refused_no_session", "early_data_refused_stale"];

/// Returns the metrics that do not come from the workers.
fn own(running: &Running) -> Vec<Family> {
    let identity = running.identity.borrow();
    let held = identity
        .as_ref()
        .and_then(|identity| identity.sessions())
        .map(|sessions| sessions.values())
        .unwrap_or_default();
    let held =
        |name: &str| held.iter().find(|(one, _)| *one == name).map_or(0, |(_, value)| *value);
    let started = running.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let sites = running.gateway.sites();
    let lines = running.gateway.log_counts();
    let certificates = running.gateway.certificates();
    let first = |certificate: &pronghorn_gateway::CertificateState| {
        format!("host=\"{}\"", certificate.hosts.first().map(String::as_str).unwrap_or_default())
    };
    let expiry = |certificate: &pronghorn_gateway::CertificateState| {
        let until = certificate.until?.duration_since(UNIX_EPOCH).ok()?;
        Some((first(certificate), until.as_secs()))
    };
    let failures = |certificate: &pronghorn_gateway::CertificateState| {
        Some((first(certificate), u64::from(certificate.order.as_ref()?.failures)))
    };
    let http3 = |site: &pronghorn_gateway::SiteState| {
        (
            format!("site=\"{}\"", site.hosts.first().map(String::as_str).unwrap_or_default()),
            u64::from(site.http3),
        )
    };
    let key_states = running.gateway.keys();
    let keys = |value: fn(&KeyState) -> u64| -> Vec<(String, u64)> {
        let each = key_states
            .iter()
            .flat_map(|(cert, states)| states.iter().map(move |state| (cert, state)));
        let series = each.map(|(cert, state)| {
            let cert = escaped(&cert.display().to_string());
            (format!("certificate=\"{cert}\",source=\"{}\"", escaped(&state.name)), value(state))
        });
        // Sites may share a certificate.
        series.collect::<BTreeMap<_, _>>().into_iter().collect()
    };
    let upstreams = running.gateway.upstream_counts();
    let values = [
        vec![(format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), 1)],
        vec![(String::new(), started)],
        vec![(String::new(), running.stats.len() as u64)],
        vec![
            ("result=\"success\"".to_owned(), running.reloads.get()),
            ("result=\"failure\"".to_owned(), running.failed_reloads.get()),
        ],
        sites.iter().map(http3).collect(),
        vec![(String::new(), held("sessions_held"))],
        vec![(String::new(), held("sessions_bytes"))],
        kernel_drops(&running.listeners),
        vec![
            ("result=\"written\"".to_owned(), lines.written()),
            ("result=\"dropped\"".to_owned(), lines.dropped()),
            ("result=\"failed\"".to_owned(), lines.failed()),
        ],
        servers_up(&running.gateway.upstream_servers()),
        vec![
            ("result=\"sent\"".to_owned(), upstreams.retries),
            ("result=\"refused\"".to_owned(), upstreams.retries_denied),
        ],
        vec![
            ("reason=\"out\"".to_owned(), upstreams.no_server),
            ("reason=\"busy\"".to_owned(), upstreams.servers_busy),
        ],
        vec![(String::new(), upstreams.tunnels.open)],
        vec![
            ("reason=\"client\"".to_owned(), upstreams.tunnels.of_one_client),
            ("reason=\"route\"".to_owned(), upstreams.tunnels.of_all),
        ],
        vec![(String::new(), upstreams.tunnels.timed_out)],
        upstreams
            .failures()
            .map(|(reason, count)| (format!("reason=\"{reason}\""), count))
            .collect(),
        vec![
            ("place=\"memory\"".to_owned(), upstreams.buffered_memory),
            ("place=\"disk\"".to_owned(), upstreams.buffered_disk),
        ],
        certificates.iter().filter_map(expiry).collect(),
        certificates.iter().filter_map(failures).collect(),
        keys(|state| state.signatures),
        keys(|state| state.failures),
        keys(|state| u64::from(state.is_skipped)),
        vec![(String::new(), running.memory.held())],
        vec![(String::new(), running.memory.bytes())],
        vec![(String::new(), running.memory.pressure().step().into())],
        MemoryPressure::ALL[1..]
            .iter()
            .map(|step| (format!("step=\"{step}\""), running.memory.times_entered(*step)))
            .collect(),
    ];
    let family = |((name, kind, help), series): (&(&str, &'static str, &str), _)| Family {
        name: (*name).to_owned(),
        help: (*help).to_owned(),
        kind,
        series,
    };
    SERVER_METRICS.iter().zip(values).map(family).collect()
}

/// Name, type and description, in the order of their values above.
const SERVER_METRICS: [(&str, &str, &str); 26] = [
    ("build_info", "gauge", "Always 1, with the version as a label."),
    ("start_time_seconds", "gauge", "Start time of the server, in seconds since 1970."),
    ("workers", "gauge", "Worker threads."),
    ("reloads_total", "counter", "Reloads of the configuration."),
    (
        "site_http3",
        "gauge",
        "Whether the site, named by its first host, is currently served over HTTP/3: 1 or 0.",
    ),
    ("tls_sessions_held", "gauge", "TLS sessions currently stored for resumption."),
    ("tls_sessions_bytes", "gauge", "Bytes of the TLS sessions currently stored."),
    (
        "kernel_udp_drops_total",
        "counter",
        "Datagrams that the kernel dropped because the buffer of a UDP socket was full, by port; \
            includes sockets of other servers on the port in this network namespace, but not \
            closed ones.",
    ),
    (
        "access_log_lines_total",
        "counter",
        "Lines of the access log: written, dropped because the output was too slow, or failed, as \
            on a full disk.",
    ),
    (
        "upstream_server_up",
        "gauge",
        "Whether requests go to this server of an upstream: 0 while it is down by its checks, or \
            ejected because requests to it failed.",
    ),
    (
        "upstream_retries_total",
        "counter",
        "Retries of requests on another server of their upstream: sent, or refused because too \
            many others were sent (`retry_budget`).",
    ),
    (
        "upstream_unavailable_total",
        "counter",
        "Requests answered 503 because all servers of their upstream were down or ejected, or had \
            too many open requests (`requests`).",
    ),
    (
        "upstream_tunnels_open",
        "gauge",
        "Tunnels open now: requests that switched to another protocol, such as WebSocket.",
    ),
    (
        "upstream_tunnels_refused_total",
        "counter",
        "Upgrade requests refused because their client, or their route, had too many tunnels open \
            (`per_client` and `open` of `upgrades`).",
    ),
    (
        "upstream_tunnels_timed_out_total",
        "counter",
        "Tunnels closed because neither side sent anything (`idle_timeout` of `upgrades`).",
    ),
    (
        "upstream_failures_total",
        "counter",
        "Requests to upstream servers without a complete response, each attempt, by reason \
            (logging.md).",
    ),
    (
        "upstream_buffered_bytes",
        "gauge",
        "Bytes of upstream responses currently buffered for slow clients (`buffering`), in memory \
            and on disk.",
    ),
    (
        "certificate_expiry_time_seconds",
        "gauge",
        "Expiry time of the certificate of a site, named by its first host, or of a host with \
            ordered certificates, in seconds since 1970.",
    ),
    (
        "certificate_order_failures",
        "gauge",
        "Consecutive failures to order the certificate of a host.",
    ),
    (
        "key_signatures_total",
        "counter",
        "Signatures of keys on other machines and in security modules (`keys`), by the file of the \
            certificate and the place of the key.",
    ),
    ("key_failures_total", "counter", "Failed attempts to sign at such a place."),
    ("key_source_skipped", "gauge", "Whether the place is skipped now, because it failed: 1 or 0."),
    (
        "memory_held_bytes",
        "gauge",
        "Memory in use: the program's own at its start, and what connections and requests hold \
            (memory.md).",
    ),
    ("memory_budget_bytes", "gauge", "Memory that may be in use (`memory` of `[limits]`)."),
    (
        "memory_pressure_step",
        "gauge",
        "How short memory is: 0 not at all, 1 new connections get small windows, 2 windows do not \
            grow on unread data, 3 windows shrink, 4 new connections are refused, 5 new requests \
            are answered 503.",
    ),
    (
        "memory_pressure_steps_total",
        "counter",
        "How often memory pressure has risen to a step, or beyond it.",
    ),
];

/// Returns one series for each server, even if an upstream lists it twice.
fn servers_up(servers: &[ServerState]) -> Vec<(String, u64)> {
    let mut series: BTreeMap<String, u64> = BTreeMap::new();
    for ServerState { upstream, server, condition } in servers {
        let labels = format!("upstream=\"{}\",server=\"{}\"", escaped(upstream), escaped(server));
        let up = series.entry(labels).or_insert(1);
        *up = (*up).min(u64::from(*condition == ServerCondition::Up));
    }
    series.into_iter().collect()
}

/// Escapes a label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn kernel_drops(listeners: &[(SocketAddr, bool)]) -> Vec<(String, u64)> {
    let tables: Vec<_> = ["/proc/self/net/udp", "/proc/self/net/udp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    let mut seen = HashSet::new();
    let ports = listeners
        .iter()
        .filter(|(_, is_secure)| *is_secure)
        .map(|(address, _)| address.port())
        .filter(|port| seen.insert(*port));
    ports
        .map(|port| {
            (format!("port=\"{port}\""), tables.iter().map(|table| drops_of(table, port)).sum())
        })
        .collect()
}

/// Sums the last column of the sockets on a port, in a table as the kernel prints it.
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

    const HEAD: &str = "# Metrics\n\n`GET /metrics` of the admin API \
        ([operations.md](operations.md)) answers in the text format of Prometheus. Counters \
                        are summed over the workers, begin at 0 when the\nserver starts and \
                        never \
                        go down. Generated: `UPDATE_DOCS=1 cargo test -p \
                        pronghorn-cli metrics` writes this page.\n\n| metric | type | labels | \
                        meaning |\n|---|---|---|---|\n";

    #[test]
    fn metrics_in_the_documentation_are_those_of_the_program() {
        let mut wanted = HEAD.to_owned();
        for Family { name, help, kind, series } in engine(|_| 0) {
            let labels: Vec<_> = series
                .iter()
                .map(|(labels, _)| labels)
                .filter(|labels| !labels.is_empty())
                .map(|labels| format!("`{labels}`"))
                .collect();
            writeln!(wanted, "| `pronghorn_{name}` | {kind} | {} | {help} |", labels.join(", "))
                .expect("a string takes all");
        }
        // As many as there are families, or it does not compile.
        let labels: [&str; SERVER_METRICS.len()] = [
            "`version`",
            "",
            "",
            "`result`: `success`, `failure`",
            "`site`",
            "",
            "",
            "`port`",
            "`result`: `written`, `dropped`, `failed`",
            "`upstream`, `server`",
            "`result`: `sent`, `refused`",
            "`reason`: `out`, `busy`",
            "",
            "`reason`: `client`, `route`",
            "",
            "`reason`: `lookup`, `connect`, `handshake`, `connect_timeout`, `queue_timeout`, \
                `head_timeout`, `body_timeout`, `busy`, `refused`, `unsupported`, `closed`, \
                `reset`, `lost`, `head_too_large`, `malformed`",
            "`place`: `memory`, `disk`",
            "`host`",
            "`host`",
            "`certificate`, `source`",
            "`certificate`, `source`",
            "`certificate`, `source`",
            "",
            "",
            "",
            "`step`: `small_windows`, `no_growth`, `shrink`, `refuse_connections`, \
                `refuse_requests`",
        ];
        for ((name, kind, help), labels) in SERVER_METRICS.iter().zip(labels) {
            writeln!(wanted, "| `pronghorn_{name}` | {kind} | {labels} | {help} |")
                .expect("a string takes all");
        }
        let nothing = Fleet::meanings().into_iter().map(|(name, _)| (name, 0)).collect();
        for Family { name, help, kind, .. } in shared_sessions(Some(nothing)) {
            writeln!(wanted, "| `pronghorn_{name}` | {kind} |  | {help} |")
                .expect("a string takes all");
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &wanted).expect("write");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "docs/gateway/metrics.md is not up to date: run with UPDATE_DOCS=1"
        );
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
    fn server_is_one_series_and_up_only_where_all_say_so() {
        let server = |upstream: &str, condition| ServerState {
            upstream: upstream.into(),
            server: "http://a:1".into(),
            condition,
        };
        let found = servers_up(&[
            server("b", ServerCondition::Up),
            server("a\"\\\n", ServerCondition::Up),
            server("b", ServerCondition::Down),
        ]);
        let wanted = [
            ("upstream=\"a\\\"\\\\\\n\",server=\"http://a:1\"", 1),
            ("upstream=\"b\",server=\"http://a:1\"", 0),
        ];
        assert_eq!(found, wanted.map(|(labels, value)| (labels.to_owned(), value)));
    }

    #[test]
    fn kernel_drops_are_those_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
            retrnsmt   uid  timeout inode ref pointer drops\n\
                     1: 0100007F:01BB 00000000:0000 07 00000000:00000000 00:00000000 \
                     00000000     \
                     0        0 27 2 0000000000000000 7\n\
                     2: 0100007F:01BB 00000000:0000 07 00000000:00000000 00:00000000 \
                     00000000     \
                     0        0 28 2 0000000000000000 5\n\
                     3: 0100007F:01BC 00000000:0000 07 00000000:00000000 00:00000000 \
                     00000000     \
                     0        0 29 2 0000000000000000 100\n";
        assert_eq!((drops_of(table, 443), drops_of(table, 444), drops_of(table, 80)), (12, 100, 0));
    }
}
