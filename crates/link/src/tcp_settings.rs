//! TCP kernel parameters inside the link's namespaces: those that the link sets, and those that
//! affect the duration of a transfer.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

/// Parameters of `net.ipv4` that affect TCP performance. A namespace may have other values than the
/// machine.
const REPORTED: [&str; 18] = [
    "tcp_early_retrans",
    "tcp_ecn",
    "tcp_fastopen",
    "tcp_frto",
    "tcp_moderate_rcvbuf",
    "tcp_mtu_probing",
    "tcp_no_metrics_save",
    "tcp_notsent_lowat",
    "tcp_recovery",
    "tcp_retries2",
    "tcp_rmem",
    "tcp_sack",
    "tcp_slow_start_after_idle",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_timestamps",
    "tcp_window_scaling",
    "tcp_wmem",
];

/// Parameters of `net.ipv4` by name, with numbers separated by single spaces. Parameters that the
/// kernel does not have are omitted.
pub type Settings = BTreeMap<&'static str, String>;

/// The parameters at both ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TcpSettings {
    /// At the client's end.
    pub near: Settings,
    /// At the server's end.
    pub far: Settings,
}

/// Reads the parameters of the calling thread's namespace.
pub(crate) fn of_this_namespace() -> Settings {
    let read = |name| Some((name, read_parameter(&format!("ipv4/{name}")).ok()?));
    REPORTED.into_iter().filter_map(read).collect()
}

/// Sets parameters of the calling thread's namespace. Failures are warnings: the link works without
/// them.
pub(crate) fn set_parameters(slow_start_after_idle: Option<bool>) -> Vec<String> {
    let mut parameters = vec![
        // Otherwise thresholds and round-trip times of one connection would affect the next.
        ("ipv4/tcp_no_metrics_save", "1"),
        // Lets a server use port 443 without being root.
        ("ipv4/ip_unprivileged_port_start", "0"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/default/disable_ipv6", "0"),
        // No unrequested packets on the link: no router solicitations, no link-local address.
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv6/conf/default/router_solicitations", "0"),
        ("ipv6/conf/default/addr_gen_mode", "1"),
    ];
    if let Some(on) = slow_start_after_idle {
        parameters.push(("ipv4/tcp_slow_start_after_idle", if on { "1" } else { "0" }));
    }
    let ipv6 = std::fs::exists("/proc/sys/net/ipv6").unwrap_or(false);
    parameters
        .into_iter()
        .filter(|(name, _)| ipv6 || !name.starts_with("ipv6"))
        .filter_map(|(name, value)| {
            let error = std::fs::write(format!("/proc/sys/net/{name}"), value).err()?;
            Some(format!("cannot set net/{name} to {value} inside the link's namespaces ({error})"))
        })
        .collect()
}

pub(crate) fn read_parameter(name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{name}"))?;
    // The kernel separates several numbers with tabs.
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}
