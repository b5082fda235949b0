//! An ordinary user with access to the TUN device: everything works without root.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::program::{path, shell_of};

/// Tests that switch from root to another user.
pub(crate) const TESTS_FOR_ROOT: &[(&str, fn())] = &[(
    "ordinary_user_runs_a_link_where_the_tun_device_is_open",
    ordinary_user_runs_a_link_where_the_tun_device_is_open,
)];

const PROFILE: &str = "name='t'\nup={delay_ms=2}\ndown={delay_ms=2}\n[[changes]]\nafter_ms=100\nnew_client_address=true";
/// Exit code of the preparation if the machine does not permit it; nothing else here uses this
/// code.
const NOT_PERMITTED: i32 = 99;

/// Runs the script as user nobody, in a mount namespace with a device node that any user may open.
fn as_nobody(folder: &Path, script: &str) -> Output {
    let node = folder.join("tun");
    let prepare = format!(
        "mknod -m 666 {node} c 10 200 && mount --bind {node} /dev/net/tun || exit \
            {NOT_PERMITTED}; \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all sh -c \"$0\"",
        node = node.display()
    );
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &prepare, script])
        .output()
        .unwrap()
}

fn ordinary_user_runs_a_link_where_the_tun_device_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // The folder and the program must be accessible to user nobody.
    mode(folder.path(), 0o777);
    let copy = folder.path().join("program");
    std::fs::copy(path(), &copy).unwrap();
    mode(&copy, 0o755);
    if !as_nobody(folder.path(), "unshare --user --net true").status.success() {
        eprintln!(
            "skipped: ordinary users cannot create namespaces on this machine, or there is no TUN \
             device"
        );
        return;
    }
    std::fs::remove_file(folder.path().join("tun")).unwrap();
    let report = folder.path().join("r.json");
    let [over_ipv4, over_ipv6] =
        ["10.77.0.2:443", "[fd77::2]:443"].map(|address| shell_of(&copy, "connect", address));
    // The second connection uses the address added by the change.
    let client = format!("id -u; cat /etc/resolv.conf; {over_ipv4}; sleep 0.3; {over_ipv6}");
    let far = shell_of(&copy, "listen", "[::]:443");
    let link = shell_of(&copy, "link", "sh -c \"$CLIENT\"");
    let variables = format!(
        "export PROFILE=\"{PROFILE}\" CLIENT='{client}' FAR='{far}' READY=443 CONGESTION=reno \
            REPORT={}",
        report.display()
    );
    let [packets, samples] = ["packets.csv", "tcp-info.csv"].map(|name| folder.path().join(name));
    let traces = format!(
        "export RESOLVER=10.77.0.2 PACKETS={} TCP_INFO={}",
        packets.display(),
        samples.display()
    );
    let output = as_nobody(folder.path(), &format!("{variables}; {traces}; {link}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "65534\nnameserver 10.77.0.2\nhellohello",
        "{errors}"
    );
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["tcp_congestion"]["far"], "reno");
    let addresses: Vec<&str> = report["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| flow["near_address"].as_str().unwrap())
        .collect();
    assert_eq!(addresses, ["10.77.0.1", "fd77::5"]);
    let rows = |path| std::fs::read_to_string(path).unwrap().lines().count() as u64 - 1;
    let counted = ["up", "down"].map(|way| report[way]["packets_in"].as_u64().unwrap());
    assert_eq!(rows(packets), counted.iter().sum::<u64>());
    assert!(report["tcp_info"]["samples"].as_u64().unwrap() > 0 && samples.exists());
}
