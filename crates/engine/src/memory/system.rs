//! How much memory the system gives this process.

use std::path::Path;

/// Read when neither a control group nor the system tells anything.
const UNKNOWN: u64 = 1 << 30;

/// Returns the default budget: nine tenths of what the control group allows, or three quarters of
/// the machine's memory.
pub(super) fn default_bytes() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    budget_of(group_limit(Path::new("/sys/fs/cgroup"), &groups), machine_bytes(&info))
}

fn budget_of(group: Option<u64>, machine: Option<u64>) -> u64 {
    let of_machine = machine.unwrap_or(UNKNOWN) / 4 * 3;
    // The rest of a group's memory is for the kernel's socket buffers and the program itself.
    group.map_or(of_machine, |group| (group / 10 * 9).min(of_machine))
}

/// Returns the machine's memory, from `/proc/meminfo`.
fn machine_bytes(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the smallest limit of the process's control group and those around it. `groups`: the
/// content of `/proc/self/cgroup`.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        if controllers.is_empty() {
            // Version 2 (cgroups(7)). Above `memory.high` the kernel slows the process down.
            smallest(root, path, &["memory.max", "memory.high"])
        } else if controllers.split(',').any(|controller| controller == "memory") {
            smallest(&root.join("memory"), path, &["memory.limit_in_bytes"])
        } else {
            None
        }
    });
    limits.min()
}

/// Returns the smallest number in these files, in the folder of `group` and those around it. Within
/// a container, the path may be that of the host: the container's own group is then at the root.
fn smallest(root: &Path, group: &str, files: &[&str]) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    group
        .ancestors()
        .flat_map(|folder| files.iter().map(move |file| root.join(folder).join(file)))
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder with these files.
    fn folder(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("pronghorn-{name}-{}", std::process::id()));
        for (file, content) in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn limit_is_the_smallest_of_the_group_and_those_around_it() {
        let root = folder(
            "groups-2",
            &[
                ("system.slice/memory.max", "536870912\n"),
                ("system.slice/memory.high", "max\n"),
                ("system.slice/web.service/memory.max", "max\n"),
                ("system.slice/web.service/memory.high", "268435456\n"),
            ],
        );
        assert_eq!(group_limit(&root, "0::/system.slice/web.service\n"), Some(256 << 20));
        assert_eq!(group_limit(&root, "0::/system.slice\n"), Some(512 << 20));
        assert_eq!(group_limit(&root, "0::/\n"), None);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn limit_is_read_in_version_1_too() {
        let root = folder(
            "groups-1",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/docker/one/memory.limit_in_bytes", "1073741824\n"),
            ],
        );
        let groups = "12:cpu,cpuacct:/docker/one\n5:memory:/docker/one\n";
        assert_eq!(group_limit(&root, groups), Some(1 << 30));
        // As in a container, where the path is the host's.
        assert_eq!(group_limit(&root, "5:memory:/other\n"), Some(9_223_372_036_854_771_712));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn budget_is_a_share_of_the_group_or_the_machine() {
        let info = "MemTotal:        8388608 kB\nMemFree:          100 kB\n";
        assert_eq!(machine_bytes(info), Some(8 << 30));
        assert_eq!(budget_of(None, machine_bytes(info)), 6 << 30);
        assert_eq!(budget_of(Some(1000), Some(8 << 30)), 900);
        assert_eq!(budget_of(Some(9_223_372_036_854_771_712), Some(8 << 30)), 6 << 30);
        assert_eq!(budget_of(None, None), UNKNOWN / 4 * 3);
    }

    #[test]
    fn default_of_this_machine_is_plausible() {
        let bytes = default_bytes();
        assert!((16 << 20..1 << 50).contains(&bytes), "{bytes}");
    }
}
