//! Commands behind a link: streams, exit codes, signals, order of start and end, and complete
//! cleanup.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::program::{copy_of_myself, link_command, path, shell};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("exit_code_of_command_is_passed_on", exit_code_of_command_is_passed_on),
    (
        "command_that_cannot_start_has_its_own_exit_code",
        command_that_cannot_start_has_its_own_exit_code,
    ),
    (
        "streams_and_inherited_descriptors_pass_through",
        streams_and_inherited_descriptors_pass_through,
    ),
    ("command_starts_once_the_far_port_listens", command_starts_once_the_far_port_listens),
    ("warm_ups_run_at_the_far_end_before_command", warm_ups_run_at_the_far_end_before_command),
    ("warm_up_that_does_not_end_is_killed_with_its_children", warm_up_that_does_not_end_is_killed),
    ("far_command_that_ends_early_is_an_error", far_command_that_ends_early_is_an_error),
    ("far_command_that_never_listens_is_an_error", far_command_that_never_listens_is_an_error),
    ("far_command_that_ignores_sigterm_is_killed", far_command_that_ignores_sigterm_is_killed),
    ("far_command_gets_sigterm_after_command", far_command_gets_sigterm_after_command),
    ("signal_is_forwarded_to_command", signal_is_forwarded_to_command),
    ("killed_link_leaves_nothing", killed_link_leaves_nothing),
    ("processes_left_in_the_background_end_with_the_link", processes_left_in_the_background_end),
    (
        "report_that_cannot_be_written_stops_before_command",
        report_that_cannot_be_written_stops_before_command,
    ),
    ("report_contains_both_commands_and_the_flow", report_contains_both_commands_and_the_flow),
    ("figures_cover_the_load_that_command_marks", figures_cover_the_load_that_command_marks),
    ("start_restarts_the_profile", start_restarts_the_profile),
    ("lateness_counts_until_the_load_ends", lateness_counts_until_the_load_ends),
    ("late_packet_of_an_earlier_connection_is_not_time_zero", late_packet_is_not_time_zero),
    ("start_undoes_changes_except_a_new_client_address", start_undoes_changes),
    ("figures_without_marks_cover_the_command", figures_without_marks_cover_the_command),
    ("cpu_time_counts_all_processes_of_an_end", cpu_time_counts_all_processes_of_an_end),
    ("commands_look_up_names_only_at_the_resolver", commands_look_up_names_only_at_the_resolver),
    (
        "malformed_profile_gives_one_line_and_exit_code_65",
        malformed_profile_gives_one_line_and_exit_code_65,
    ),
    ("commands_see_only_their_own_processes", commands_see_only_their_own_processes),
];

/// Tests that drop root privileges.
pub(crate) const TESTS_FOR_ROOT: &[(&str, fn())] =
    &[("unprivileged_user_gets_one_error_line", unprivileged_user_gets_one_error_line)];

/// Timeout of a failing test; passing tests never reach it.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(command: &mut Command) -> Output {
    command.output().expect("the test program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> Option<i32> {
    if output.status.code().is_none_or(|code| code == 70) {
        eprintln!("stderr: {}", text(&output.stderr));
    }
    output.status.code()
}

fn exit_code_of_command_is_passed_on() {
    assert_eq!(code(&run(&mut link_command(&["true"]))), Some(0));
    assert_eq!(code(&run(&mut link_command(&["sh", "-c", "exit 7"]))), Some(7));
    assert_eq!(code(&run(&mut link_command(&["sh", "-c", "kill -9 $$"]))), Some(128 + 9));
}

fn command_that_cannot_start_has_its_own_exit_code() {
    let missing = run(&mut link_command(&["no-such-program-anywhere"]));
    assert_eq!(code(&missing), Some(127));
    assert!(text(&missing.stderr).contains("cannot start no-such-program-anywhere: "));
    assert_eq!(code(&run(&mut link_command(&["/etc/passwd"]))), Some(126));
    assert_eq!(code(&run(&mut link_command(&[]))), Some(2));
}

fn streams_and_inherited_descriptors_pass_through() {
    // The shell passes descriptor 3 to the link, which must pass it to the command.
    let line = shell("link", "sh -c 'cat; echo to-stderr >&2; echo to-three >&3' 3>&1 >/dev/null");
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .env("PROFILE", "name='t'\n[up]\ndelay_ms=2\n[down]\ndelay_ms=2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"from-stdin\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert_eq!(text(&output.stdout), "to-three\n");
    assert!(text(&output.stderr).contains("to-stderr"));
    let echoed = with_input(link_command(&["cat"]), b"from-stdin\n");
    assert_eq!(text(&echoed.stdout), "from-stdin\n");
}

fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn command_starts_once_the_far_port_listens() {
    // The listener starts late; the client tries only once. Port 443 needs no privileges.
    let late = format!("sh -c 'sleep 0.3; exec {}'", shell("listen", "10.77.0.2:443"));
    let client = shell("connect", "10.77.0.2:443");
    let output = run(link_command(&["sh", "-c", &client]).env("FAR", late).env("READY", "443"));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "hello");
    assert!(
        text(&output.stderr).contains("listening"),
        "the far command's output belongs on standard error"
    );
}

fn warm_ups_run_at_the_far_end_before_command() {
    let folder = tempfile::tempdir().unwrap();
    let (path, trace) = (folder.path().join("r.json"), folder.path().join("trace"));
    // No process listens on that port at the near end. The second warm-up fails, which only shows
    // in the report.
    let connect = shell("connect", "10.77.0.2:443");
    let warm_ups = format!("{connect}\nsh -c '{connect} > {}; exit 3'", trace.display());
    let output = run(link_command(&["cat", &trace.display().to_string()])
        .env("FAR", shell("listen", "10.77.0.2:443"))
        .env("READY", "443")
        .env("WARM_UPS", warm_ups)
        .env("REPORT", &path));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "hello", "the output of warm-ups is not on standard output");
    assert!(
        text(&output.stderr).contains("warning: the warm-up `sh -c "),
        "{}",
        text(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let codes: Vec<_> = report["commands"]["warm_ups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| each["exit_code"].as_i64())
        .collect();
    assert_eq!(codes, [Some(0), Some(3)]);
    assert_eq!(
        (&report["up"]["packets_in"], &report["down"]["packets_in"]),
        (&0.into(), &0.into()),
        "no packet crossed the link"
    );
}

fn warm_up_that_does_not_end_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let marker = marker(4);
    // A shell that waits for its child.
    let mut command = link_command(&["sh", "-c", "echo ready; cat"]);
    command
        .env("FAR", shell("listen", "10.77.0.2:443"))
        .env("READY", "443")
        .env("READY_MS", "2000")
        .env("WARM_UPS", format!("sh -c 'sleep {marker}; exit 1'"))
        .env("REPORT", &path)
        .stdin(Stdio::piped());
    let (mut child, _lines) = start_and_wait_for_line(command);
    // The shell and its child end while COMMAND runs, not only with the link.
    wait_until_gone(&marker);
    drop(child.0.stdin.take());
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["commands"]["warm_ups"][0]["killed"], true);
    wait_until_gone(&marker);
}

fn far_command_that_ends_early_is_an_error() {
    let output = run(link_command(&["echo", "started"])
        .env("FAR", "sh -c 'echo broken >&2; exit 3'")
        .env("READY", "443"));
    assert_eq!(code(&output), Some(69));
    assert_eq!(text(&output.stdout), "", "COMMAND must not start");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("broken") && errors.contains("exit status: 3") && errors.contains("443"),
        "{errors}"
    );
    let missing = run(link_command(&["echo", "started"]).env("FAR", "no-such-server"));
    assert_eq!((code(&missing), text(&missing.stdout).as_str()), (Some(127), ""));
}

fn far_command_that_never_listens_is_an_error() {
    let marker = marker(3);
    let output = run(link_command(&["echo", "started"])
        .env("FAR", format!("sleep {marker}"))
        .env("READY", "443")
        .env("READY_MS", "200"));
    assert_eq!((code(&output), text(&output.stdout).as_str()), (Some(69), ""));
    assert!(
        text(&output.stderr).contains("did not listen on tcp port 443"),
        "{}",
        text(&output.stderr)
    );
    wait_until_gone(&marker);
}

fn far_command_that_ignores_sigterm_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (report, ready) = (folder.path().join("r.json"), folder.path().join("ready"));
    let far =
        format!("sh -c 'trap \"\" TERM; echo > {}; while :; do sleep 0.05; done'", ready.display());
    let wait = format!("while ! test -e {}; do sleep 0.05; done", ready.display());
    let mut command = link_command(&["sh", "-c", &wait]);
    assert_eq!(
        code(&run(command.env("FAR", far).env("GRACE_MS", "100").env("REPORT", &report))),
        Some(0)
    );
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(
        (&report["commands"]["far"]["signal"], &report["commands"]["far"]["killed"]),
        (&9.into(), &true.into())
    );
}

fn far_command_gets_sigterm_after_command() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("r.json");
    // COMMAND ends only after the trap is in place.
    let ready = folder.path().join("ready");
    let far = format!(
        "sh -c 'trap \"echo asked-to-end; exit 5\" TERM; echo > {}; while :; do sleep 0.05; done'",
        ready.display()
    );
    let wait =
        format!("while ! test -e {}; do sleep 0.05; done; echo command-ends", ready.display());
    let output = run(link_command(&["sh", "-c", &wait]).env("FAR", far).env("REPORT", &report));
    assert_eq!(code(&output), Some(0));
    assert_eq!(text(&output.stdout), "command-ends\n");
    assert!(text(&output.stderr).contains("asked-to-end"));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["commands"]["far"]["exit_code"], 5);
    assert_eq!(report["commands"]["far"]["killed"], false);
}

/// A child that is killed if the test fails, so that no reader waits for its streams.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_and_wait_for_line(
    mut command: Command,
) -> (Running, BufReader<std::process::ChildStdout>) {
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, lines)
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

fn signal_is_forwarded_to_command() {
    for (number, name) in
        [(rustix::process::Signal::TERM, "TERM"), (rustix::process::Signal::INT, "INT")]
    {
        let script = format!("trap 'exit 42' {name}; echo ready; while :; do sleep 0.05; done");
        // A shell cannot trap signals that were ignored at its start, as in background jobs of a
        // script.
        let command =
            link_command(&["env", &format!("--default-signal={name}"), "sh", "-c", &script]);
        let (mut child, _lines) = start_and_wait_for_line(command);
        signal(&child.0, number);
        assert_eq!(child.0.wait().unwrap().code(), Some(42), "SIG{name}");
    }
}

/// Returns the IDs of processes with `marker` in their command line.
fn processes_with(marker: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |path: &Path| {
        std::fs::read(path.join("cmdline")).is_ok_and(|line| text(&line).contains(marker))
    };
    entries
        .filter(|entry| has(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn wait_until_gone(marker: &str) {
    let since = Instant::now();
    while !processes_with(marker).is_empty() {
        assert!(since.elapsed() < PATIENCE, "still there: {:?}", processes_with(marker));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a sleep duration that no other process uses.
fn marker(number: u32) -> String {
    format!("86400.{}{number}", std::process::id())
}

/// Returns the network namespaces of these processes, except that of the tests and of the link's
/// own process.
fn network_namespaces_of(marker: &str) -> Vec<std::path::PathBuf> {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let of = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/ns/net")).ok().filter(|network| *network != own)
    };
    let mut networks: Vec<_> = processes_with(marker).iter().filter_map(of).collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}

fn killed_link_leaves_nothing() {
    let marker = marker(1);
    let folder = tempfile::tempdir().unwrap();
    // A child, and one that has left its parent, session and process group.
    let script = format!("sleep {marker} & setsid -f sleep {marker}; echo ready; sleep {marker}");
    let mut command = link_command(&["sh", "-c", &script]);
    command.env("FAR", format!("sleep {marker}")).env("REPORT", folder.path().join("r.json"));
    let (mut child, mut lines) = start_and_wait_for_line(command);
    assert!(processes_with(&marker).len() >= 4);
    let networks = network_namespaces_of(&marker);
    assert_eq!(networks.len(), 2, "near and far");
    signal(&child.0, rustix::process::Signal::KILL);
    assert_eq!(child.0.wait().unwrap().signal(), Some(9));
    wait_until_gone(&marker);
    // Standard output closes only when the last process that holds it has ended.
    lines.read_to_end(&mut Vec::new()).unwrap();
    // The namespaces have no name, and no partial file remains.
    if let Ok(names) = std::fs::read_dir("/run/netns") {
        let named = names.flatten().filter_map(|entry| std::fs::metadata(entry.path()).ok());
        let inodes: Vec<String> = named
            .map(|data| format!("net:[{}]", std::os::unix::fs::MetadataExt::ino(&data)))
            .collect();
        assert!(networks.iter().all(|network| !inodes.contains(&network.display().to_string())));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

fn processes_left_in_the_background_end() {
    let marker = marker(2);
    let script = format!("setsid -f sleep {marker} > /dev/null 2>&1; exit 3");
    assert_eq!(code(&run(&mut link_command(&["sh", "-c", &script]))), Some(3));
    wait_until_gone(&marker);
}

fn report_that_cannot_be_written_stops_before_command() {
    let output = run(link_command(&["echo", "started"]).env("REPORT", "/no/such/folder/r.json"));
    assert_eq!(code(&output), Some(73));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).starts_with("cannot write the report /no/such/folder/r.json: "));
}

fn report_contains_both_commands_and_the_flow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let client = shell("connect", "[fd77::2]:443");
    let output = run(link_command(&["sh", "-c", &client])
        .env("FAR", shell("listen", "[::]:443"))
        .env("READY", "443")
        .env("CONGESTION", "reno")
        .env("REPORT", &path));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["schema"], "pronghorn-link-report/3");
    assert_eq!(report["commands"]["near"]["exit_code"], 0);
    assert_eq!(report["commands"]["far"]["signal"], 15, "the listener has no handler for SIGTERM");
    assert_eq!(report["tcp_congestion"]["far"], "reno");
    assert_eq!(report["up"]["asked"]["delay_ms"], 2.0);
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 1, "{flows:?}");
    assert_eq!((&flows[0]["protocol"], &flows[0]["far_port"]), (&"tcp".into(), &443.into()));
    assert_eq!(flows[0]["far_address"], "fd77::2");
    assert!(flows[0]["down"]["bytes"].as_u64().unwrap() > 5);
}

fn cpu_time_counts_all_processes_of_an_end() {
    const EACH: f64 = 0.15;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let (left, burnt) = (folder.path().join("left"), folder.path().join("burnt"));
    let burn = shell("burn", &EACH.to_string());
    let wait_for = |path: &Path| format!("while ! test -e {}; do sleep 0.02; done", path.display());
    // A child that is waited for, an orphan that ends while the link runs, and an orphan with a
    // child that still runs at the end.
    let orphan = format!("setsid -f sh -c '{burn}; echo > {}'", burnt.display());
    let lasting =
        format!("setsid -f sh -c '{burn}; echo > {}; sleep 86400; echo never'", left.display());
    let near = format!("{orphan}; {lasting}; {burn}; {}; {}", wait_for(&burnt), wait_for(&left));
    let far =
        format!("sh -c '{burn}; echo > {}; exec sleep 86400'", folder.path().join("far").display());
    let near = format!("{near}; {}", wait_for(&folder.path().join("far")));
    let output = run(link_command(&["sh", "-c", &near]).env("FAR", far).env("REPORT", &path));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let cpu =
        |of: &serde_json::Value| of["user"].as_f64().unwrap() + of["system"].as_f64().unwrap();
    let (near, far) = (
        cpu(&report["commands"]["near"]["cpu_seconds"]),
        cpu(&report["commands"]["far"]["cpu_seconds"]),
    );
    // Shells, sleeps and process starts use some CPU time too.
    assert!((3.0 * EACH..4.0 * EACH).contains(&near), "near: {near} s");
    assert!((EACH..2.0 * EACH).contains(&far), "far: {far} s");
    let (emulator, process) =
        (cpu(&report["cpu_seconds"]["emulator"]), cpu(&report["cpu_seconds"]["process"]));
    assert!(
        emulator < process && process < 2.0 * EACH,
        "CPU time of the commands is counted for the link: {emulator} s, {process} s"
    );
}

/// Three threads of work on one processor wait for each other. Time before `start` and after `end`
/// does not count.
fn figures_cover_the_load_that_command_marks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let order = |order: &str| {
        format!(
            "echo {order} >&$PRONGHORN_LINK_CONTROL; read answer <&$PRONGHORN_LINK_CONTROL; echo \
                $answer"
        )
    };
    let (burn, for_ever) = (shell("burn", "0.2"), shell("burn", "1000"));
    // The two endless ones still run at the end, so that their run delay is known.
    let script = format!(
        "sleep 0.3; {}; {for_ever} & {for_ever} & {burn}; {}; sleep 0.3",
        order("start"),
        order("end")
    );
    let one = first_processor();
    let output = run(link_command(&["taskset", "-c", &one, "sh", "-c", &script])
        .env("FAR", "sleep 100")
        .env("REPORT", &path));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "started\nended\n");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let machine = &report["machine"];
    assert_eq!(machine["end_marked"], true);
    let seconds = machine["seconds"].as_f64().unwrap();
    let duration = report["duration_seconds"].as_f64().unwrap();
    assert!(seconds > 0.1 && seconds < duration - 0.6, "{seconds} of {duration}");
    let processors = machine["processors"].as_u64().unwrap();
    assert!((1..=4096).contains(&processors), "{machine}");
    for name in ["idle_seconds", "steal_seconds"] {
        let found = machine[name].as_f64().unwrap();
        // Ticks are coarse, and the clock is read after them, on a busy machine some time later.
        assert!(found >= 0.0 && found <= (seconds + 0.2) * processors as f64, "{name} {machine}");
    }
    if !Path::new("/proc/self/schedstat").exists() {
        return;
    }
    for end in ["emulator", "link", "far"] {
        assert!(
            machine["run_delay_seconds"][end].as_f64().is_some_and(|seconds| seconds >= 0.0),
            "{end} {machine}"
        );
    }
    // Two threads waited while the third one ran.
    let near = machine["run_delay_seconds"]["near"].as_f64().unwrap();
    assert!(near > 0.05, "{machine}");
}

/// The second connection is the first one of the load.
fn start_restarts_the_profile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let connect = shell("connect", "10.77.0.2:443");
    let script = format!(
        "{connect}; sleep 0.3; echo start >&$PRONGHORN_LINK_CONTROL; read answer \
            <&$PRONGHORN_LINK_CONTROL; {connect}"
    );
    // The first packet of each load is lost, so each connection takes a second.
    let output = run(link_command(&["sh", "-c", &script])
        .env("PROFILE", "name='t'\n[up]\ndelay_ms=2\nlose_packets=[1]\n[down]\ndelay_ms=2")
        .env("FAR", shell("listen", "10.77.0.2:443"))
        .env("READY", "443")
        .env("REPORT", &path));
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(0), "hellohello"),
        "{}",
        text(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // The loss in the load; the earlier visit does not count.
    assert_eq!(report["up"]["packets_lost"], 1);
    assert_eq!(report["flows"].as_array().unwrap().len(), 1);
    assert!(
        report["time_zero_seconds"].as_f64().unwrap() >= 1.3,
        "{}",
        report["time_zero_seconds"]
    );
}

fn lateness_counts_until_the_load_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let connect = shell("connect", "10.77.0.2:443");
    let order = |order: &str| {
        format!("echo {order} >&$PRONGHORN_LINK_CONTROL; read answer <&$PRONGHORN_LINK_CONTROL")
    };
    let run = |steps: &[&str]| {
        let output = run(link_command(&["sh", "-ec", &steps.join("; ")])
            .env("FAR", shell("listen", "10.77.0.2:443"))
            .env("READY", "443")
            .env("REPORT", &path));
        assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let number = |pointer: &str| {
            report.pointer(pointer).and_then(serde_json::Value::as_u64).expect("a number")
        };
        for name in ["packets", "late"] {
            let [all, up, down] =
                ["", "/up", "/down"].map(|of| number(&format!("{of}/lateness_us/{name}")));
            assert_eq!(all, up + down, "{report}");
        }
        assert_eq!(
            report["kept_deadlines"],
            number("/lateness_us/late") <= 1.max(number("/lateness_us/packets") / 100),
            "{report}"
        );
        assert_eq!(report["lateness_bound_us"], 250.0);
        let of_flow = |flow: &serde_json::Value| {
            flow["up"]["packets"].as_u64().unwrap() + flow["down"]["packets"].as_u64().unwrap()
        };
        let flows: Vec<u64> = report["flows"].as_array().unwrap().iter().map(of_flow).collect();
        (
            number("/lateness_us/packets"),
            flows,
            number("/up/packets_out") + number("/down/packets_out"),
        )
    };
    let [start, end] = [order("start"), order("end")];
    // The second connection does not belong to the load, and a repeated `end` has no effect.
    let (packets, flows, _) = run(&[&start, &connect, &end, &connect, &end]);
    assert_eq!(flows.len(), 2);
    assert!(packets > 0 && packets <= flows[0].max(flows[1]), "{packets} of {flows:?}");
    // A second load counts from zero, and without `end` up to the last packet.
    let (packets, _, out) = run(&[&start, &connect, &end, &start, &connect]);
    assert!(packets > 0 && packets == out, "{packets} of {out}");
}

/// The connection of the earlier visit ends only after `start`. Its last packets are not the load's
/// first packet, which is lost by number.
fn late_packet_is_not_time_zero() {
    let folder = tempfile::tempdir().unwrap();
    let [path, connected, go] = ["r.json", "connected", "go"].map(|name| folder.path().join(name));
    let linger = shell("linger", &format!("10.77.0.2:443 {}", go.display()));
    let script = format!(
        "{linger} > {connected} & while ! test -s {connected}; do sleep 0.02; done; echo start \
            >&$PRONGHORN_LINK_CONTROL; read answer <&$PRONGHORN_LINK_CONTROL; \
         echo > {go}; wait; sleep 1; {connect}",
        connected = connected.display(),
        go = go.display(),
        connect = shell("connect", "10.77.0.2:443"),
    );
    let output = run(link_command(&["sh", "-c", &script])
        .env(
            "PROFILE",
            "name='t'\n[up]\ndelay_ms=2\nlose_packets=[1]\n[down]\ndelay_ms=2\nlose_packets=[1]",
        )
        .env("FAR", shell("listen", "10.77.0.2:443"))
        .env("READY", "443")
        .env("REPORT", &path));
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(0), "hello"),
        "{}",
        text(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // Two packets lost before `start`, each retransmitted after a second, and the pause before the
    // load.
    assert!(report["time_zero_seconds"].as_f64().unwrap() >= 3.0, "{report}");
    let lost = |way: &str| {
        report["flows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flow| flow[way]["packets_lost"].as_u64().unwrap())
            .collect()
    };
    // The end of the earlier connection lost nothing; the load lost its SYN and SYN-ACK.
    for way in ["up", "down"] {
        let mut lost: Vec<u64> = lost(way);
        lost.sort_unstable();
        assert_eq!(lost, [0, 1], "{report}");
    }
}

/// A change made during the earlier visit is undone, and made again in the load.
fn start_undoes_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let connect = shell("connect", "10.77.0.2:443");
    let start = "echo start >&$PRONGHORN_LINK_CONTROL; read answer <&$PRONGHORN_LINK_CONTROL; \
        echo \
            $answer";
    let script = format!("{connect}; sleep 0.5; {start}; {connect}; sleep 0.5");
    let run = |more: &str| {
        let change = format!("[[changes]]\nafter_ms=200\n{more}\nup={{delay_ms=3}}");
        let output = run(link_command(&["sh", "-c", &script])
            .env("PROFILE", format!("name='t'\n[up]\ndelay_ms=2\n[down]\ndelay_ms=2\n{change}"))
            .env("FAR", shell("listen", "10.77.0.2:443"))
            .env("READY", "443")
            .env("REPORT", &path));
        assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        (
            text(&output.stdout),
            report["changes"][0]["made_seconds"].as_f64().unwrap()
                - report["time_zero_seconds"].as_f64().unwrap(),
        )
    };
    let (said, made_after) = run("");
    assert_eq!(said, "hellostarted\nhello");
    assert!(made_after >= 0.2, "{made_after}");
    // A new address of the client cannot be undone: programs have seen it.
    let (said, made_after) = run("new_client_address=true");
    let refused = "error: the profile has changed the client's address already: start before \
        that, or use a link for each load";
    assert_eq!(said, format!("hello{refused}\nhello"));
    assert!(made_after >= 0.2, "{made_after}");
}

fn figures_without_marks_cover_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let output = run(link_command(&["sleep", "0.2"]).env("REPORT", &path));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let machine = &report["machine"];
    assert_eq!(machine["end_marked"], false);
    assert!(machine["seconds"].as_f64().unwrap() >= 0.2, "{machine}");
    assert_eq!(
        (&machine["run_delay_seconds"]["near"], &machine["run_delay_seconds"]["far"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
}

fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    allowed.split(['-', ',']).next().unwrap().to_owned()
}

/// Both ends see the same files; the machine's own files are unchanged.
fn commands_look_up_names_only_at_the_resolver() {
    let files = ["/etc/resolv.conf", "/etc/hosts"];
    let outside = files.map(|path| std::fs::read(path).unwrap());
    let show = "cat /etc/resolv.conf /etc/hosts; grep ^hosts: /etc/nsswitch.conf || true; test \
        $(readlink /proc/self) -lt 20";
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let far = format!("sh -c '({show}) >&2; echo > {}'", done.display());
    let near = format!("{show} && while ! test -e {}; do sleep 0.02; done", done.display());
    let output = run(link_command(&["sh", "-c", &near]).env("FAR", far).env("RESOLVER", "fd77::2"));
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let mut expected = "nameserver fd77::2\n127.0.0.1 localhost\n::1 localhost\n".to_owned();
    if Path::new("/etc/nsswitch.conf").exists() {
        expected.push_str("hosts: files dns\n");
    }
    assert_eq!(text(&output.stdout), expected);
    assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    assert_eq!(files.map(|path| std::fs::read(path).unwrap()), outside);
    let elsewhere = run(link_command(&["echo", "started"]).env("RESOLVER", "192.0.2.1"));
    assert_eq!((code(&elsewhere), text(&elsewhere.stdout).as_str()), (Some(2), ""));
}

fn malformed_profile_gives_one_line_and_exit_code_65() {
    let output = run(link_command(&["echo", "started"])
        .env("PROFILE", "name='t'\n[up]\ndelay_ms=-4\n[down]\ndelay_ms=2"));
    assert_eq!((code(&output), text(&output.stdout).as_str()), (Some(65), ""));
    assert_eq!(
        text(&output.stderr),
        "up.delay_ms is -4: allowed is 0 to 60000 milliseconds, one way\n"
    );
}

/// The commands have their own process IDs, and a matching /proc.
fn commands_see_only_their_own_processes() {
    let script = "test $(readlink /proc/self) -lt 20 && test \"$(cat /proc/1/comm)\" = \
        link-keeper";
    assert_eq!(code(&run(&mut link_command(&["sh", "-c", script]))), Some(0));
}

/// Runs as user nobody. The machine may refuse user namespaces, the TUN device, or nothing.
fn unprivileged_user_gets_one_error_line() {
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata("/dev/net/tun").unwrap());
    // A copy that every user may run; the original may be in root's home folder.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("program");
    std::fs::copy(path(), &copy).unwrap();
    for opened in [folder.path(), &copy] {
        std::fs::set_permissions(opened, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
    }
    let mut command = copy_of_myself(&copy, "link");
    command
        .args(["echo", "started"])
        .env("PROFILE", "name='t'\n[up]\ndelay_ms=2\n[down]\ndelay_ms=2");
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    std::os::unix::process::CommandExt::gid(&mut command, 65534);
    let output = run(&mut command);
    let errors = text(&output.stderr);
    if mode & 0o006 == 0o006 && output.status.success() {
        assert_eq!(text(&output.stdout), "started\n");
        return;
    }
    assert_eq!((code(&output), text(&output.stdout).as_str()), (Some(77), ""), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("/dev/net/tun") || errors.contains("user namespace"), "{errors}");
}
