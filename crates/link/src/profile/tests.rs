use std::path::Path;

use super::*;

fn with_up(up: &str) -> Result<Profile, Error> {
    Profile::from_toml(&format!("name = \"t\"\n[up]\n{up}\n[down]\ndelay_ms = 1\n"))
}

fn error_of(up: &str) -> String {
    with_up(up).expect_err("must be refused").to_string()
}

#[test]
fn direction_is_parsed_with_its_units() {
    let profile = with_up(
        "rate_mbit_per_second = 12\ndelay_ms = 35.5\njitter_ms = \
        8\nloss_percent = 15\nqueue_ms = 300",
    )
    .unwrap();
    assert_eq!(
        profile.up,
        Direction {
            rate_bits_per_second: Some(12_000_000),
            rate_trace: None,
            outages: None,
            delay_ns: 35_500_000,
            jitter_ns: 8_000_000,
            reorder: false,
            loss: Loss::Independent { percent: 15.0 },
            lose_packets: Vec::new(),
            queue_bytes: Some(450_000),
        }
    );
    assert_eq!(profile.up.asked().queue_ms, Some(300.0));
    assert_eq!(profile.down.rate_bits_per_second, None);
}

#[test]
fn out_of_range_number_names_field_and_range() {
    assert_eq!(
        error_of("delay_ms = 1\nloss_percent = 150"),
        "up.loss_percent is 150: allowed is 0 to 100 percent"
    );
    assert_eq!(
        error_of("delay_ms = -1"),
        "up.delay_ms is -1: allowed is 0 to 60000 milliseconds, one way"
    );
    assert!(error_of("delay_ms = nan").starts_with("up.delay_ms is NaN: allowed is"));
    assert!(
        error_of("delay_ms = 2\njitter_ms = 3").starts_with("up.jitter_ms is 3: allowed is 0 to 2")
    );
    assert!(
        error_of("delay_ms = 1\nrate_mbit_per_second = 0\nqueue_ms = 5")
            .starts_with("up.rate_mbit_per_second is 0")
    );
}

#[test]
fn queue_below_one_packet_is_refused_in_both_units() {
    assert!(
        error_of("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_bytes = 1499")
            .starts_with("up.queue_bytes is 1499")
    );
    assert!(
        error_of("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 0.99")
            .starts_with("up.queue_ms is 0.99")
    );
    assert_eq!(
        with_up("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 1").unwrap().up.queue_bytes,
        Some(1500)
    );
}

#[test]
fn queue_or_rate_alone_is_refused() {
    assert!(
        error_of("delay_ms = 1\nrate_mbit_per_second = 12")
            .contains("give queue_bytes or queue_ms")
    );
    assert!(error_of("delay_ms = 1\nqueue_ms = 12").contains("without rate_mbit_per_second"));
    assert!(
        error_of("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 9\nqueue_bytes = 9000")
            .contains("keep one")
    );
}

#[test]
fn key_error_is_one_line_with_line_number_and_key() {
    let unknown = error_of("delay_ms = 1\ndelay = 3");
    assert!(unknown.starts_with("line 4: unknown field `delay`, expected one of"), "{unknown}");
    let missing = Profile::from_toml("name = \"x\"\n[up]\ndelay_ms = 1\n").unwrap_err().to_string();
    assert!(missing.contains("missing field `down`"), "{missing}");
    let broken = Profile::from_toml("name = \"x\"\nup = [\n").unwrap_err().to_string();
    assert!(!broken.contains('\n'), "{broken}");
    let mistyped = error_of("delay_ms = \"long\"");
    assert!(mistyped.starts_with("line 3: delay_ms: invalid type"), "{mistyped}");
}

#[test]
fn bursts_without_loss_or_of_insufficient_length_are_refused() {
    let profile = with_up("delay_ms = 1\nloss_percent = 15\nloss_burst_packets = 2").unwrap();
    assert_eq!(profile.up.loss, Loss::Bursts { percent: 15.0, packets: 2.0 });
    let (after_arrival, after_loss) = burst_chances(15.0, 2.0);
    assert!(
        (after_arrival - 0.0882).abs() < 1e-4 && (after_loss - 0.5).abs() < 1e-9,
        "{after_arrival} {after_loss}"
    );
    assert!(
        error_of("delay_ms = 1\nloss_burst_packets = 2").contains("needs a loss_percent above 0")
    );
    assert!(
        error_of("delay_ms = 1\nloss_percent = 100\nloss_burst_packets = 2").contains("below 100")
    );
    assert!(
        error_of("delay_ms = 1\nloss_percent = 50\nloss_burst_packets = 1.9")
            .starts_with("up.loss_burst_packets is 1.9: allowed is 2 to")
    );
    let alone = with_up("delay_ms = 1\nloss_percent = 15").unwrap();
    assert_ne!(alone.hash(), profile.hash());
}

#[test]
fn hashes_of_published_results_are_unchanged() {
    let direction = "rate_mbit_per_second = 50\ndelay_ms = 5\nqueue_ms = 100";
    let mild =
        Profile::from_toml(&format!("name = \"mild\"\n[up]\n{direction}\n[down]\n{direction}\n"))
            .unwrap();
    assert_eq!(
        mild.hash(),
        "sha256:0edfa04ab8fcb18833017a58d4cc0fd7b07c269cf7eeb63b9507e090524c9de8"
    );
}

#[test]
fn gilbert_elliott_probabilities_are_parsed() {
    let profile = with_up(
        "delay_ms=1\ngilbert_elliott = { good_to_bad_percent = 2, bad_to_good_percent = 30 }",
    )
    .unwrap();
    let model = GilbertElliott {
        good_to_bad_percent: 2.0,
        bad_to_good_percent: 30.0,
        loss_in_bad_percent: 100.0,
        loss_in_good_percent: 0.0,
    };
    assert_eq!(profile.up.loss, Loss::GilbertElliott(model));
    assert!((profile.up.asked().loss_percent - 6.25).abs() < 1e-9);
    let full = "gilbert_elliott = { good_to_bad_percent = 2, bad_to_good_percent = 30, \
        loss_in_bad_percent = 90, loss_in_good_percent = 1 }";
    let full = with_up(&format!("delay_ms=1\n{full}")).unwrap();
    assert!((full.up.loss.percent() - (90.0 * 2.0 + 30.0) / 32.0).abs() < 1e-9);
    assert_ne!(full.hash(), profile.hash());
    let of = |model: &str| error_of(&format!("delay_ms=1\ngilbert_elliott = {model}"));
    assert!(of("{ good_to_bad_percent = 2 }").contains("missing field `bad_to_good_percent`"));
    assert!(
        of("{ good_to_bad_percent = 0, bad_to_good_percent = 0 }")
            .contains("must neither both be 0 nor both be 100")
    );
    let above = of("{ good_to_bad_percent = 101, bad_to_good_percent = 0 }");
    assert!(
        above.starts_with("up.gilbert_elliott.good_to_bad_percent is 101: allowed is 0 to 100"),
        "{above}"
    );
    let both = error_of(
        "delay_ms=1\nloss_percent=1\ngilbert_elliott = { good_to_bad_percent = 2, \
            bad_to_good_percent = 3 }",
    );
    assert!(both.contains("leave loss_percent and loss_burst_packets out"), "{both}");
}

#[test]
fn outages_require_a_rate_and_reordering_requires_jitter() {
    let outages = "outage_ms = [500, 1500]\noutage_every_ms = [20000, 60000]";
    let steady = "delay_ms=1\nrate_mbit_per_second=12\nqueue_ms=300";
    let asked = with_up(&format!("{steady}\n{outages}")).unwrap().up.asked();
    assert_eq!(
        (asked.outage_ms, asked.outage_every_ms),
        (Some([500.0, 1500.0]), Some([20_000.0, 60_000.0]))
    );
    assert!(
        error_of(&format!("delay_ms=1\n{outages}")).contains("outages need a rate_mbit_per_second")
    );
    assert!(error_of(&format!("{steady}\noutage_ms = [500, 1500]")).contains("give both"));
    assert!(
        error_of(&format!("{steady}\noutage_ms = [500, 400]\noutage_every_ms=[2000,3000]"))
            .starts_with("up.outage_ms[1] is 400")
    );
    assert!(
        error_of(&format!("{steady}\noutage_ms = [500, 900]\noutage_every_ms=[900,3000]"))
            .starts_with("up.outage_every_ms[0] is 900")
    );
    assert!(error_of("delay_ms=1\nreorder=true").contains("reorder needs a jitter_ms above 0"));
    assert!(with_up("delay_ms=2\njitter_ms=1\nreorder=true").unwrap().up.reorder);
}

#[test]
fn packets_to_lose_are_sorted_and_counted_from_one() {
    assert_eq!(with_up("delay_ms=1\nlose_packets=[7,1,7]").unwrap().up.lose_packets, [1, 7]);
    assert!(error_of("delay_ms=1\nlose_packets=[0]").contains("packets are counted from 1"));
    assert!(error_of("delay_ms=1\nlose_packets=[-1]").contains("lose_packets"));
    assert!(
        error_of(&format!("delay_ms=1\nlose_packets=[{}1]", "1,".repeat(10_000)))
            .contains("names 10001 packets")
    );
    assert_eq!(
        with_up("delay_ms=1\nlose_packets=[]").unwrap().hash(),
        with_up("delay_ms=1").unwrap().hash()
    );
}

#[test]
fn trace_is_relative_to_the_profile_and_hashed_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let load = |keys: &str| {
        write("p.toml", &format!("name = \"t\"\n[up]\ndelay_ms=1\n{keys}\n[down]\ndelay_ms = 1\n"));
        Profile::load(&folder.path().join("p.toml"))
    };
    write("a.trace", "1\n2\n3\n");
    write("b.trace", "1 \n2\r\n3");
    write("c.trace", "1\n2\n4\n");
    let [a, b, c] = ["a", "b", "c"]
        .map(|name| load(&format!("rate_trace=\"{name}.trace\"\nqueue_ms=300")).unwrap());
    assert_eq!((a.up.rate_bits_per_second, a.up.queue_bytes), (Some(12_000_000), Some(450_000)));
    assert_eq!(a.hash(), b.hash());
    assert_ne!(a.hash(), c.hash());
    let missing = load("rate_trace=\"none.trace\"\nqueue_ms=300").unwrap_err();
    assert!(missing.to_string().contains("none.trace: No such file"), "{missing}");
    assert_eq!(crate::Error::from(missing).exit_code(), 66);
    write("d.trace", "1\nx\n");
    let broken = load("rate_trace=\"d.trace\"\nqueue_ms=300").unwrap_err();
    assert!(
        broken.to_string().ends_with("d.trace: line 2: `x` is not a whole number of milliseconds"),
        "{broken}"
    );
    assert_eq!(crate::Error::from(broken).exit_code(), 65);
    assert!(
        load("rate_trace=\"a.trace\"")
            .unwrap_err()
            .to_string()
            .contains("rate_trace needs a bound for its queue")
    );
    let both = load("rate_trace=\"a.trace\"\nqueue_ms=300\nrate_mbit_per_second=1")
        .unwrap_err()
        .to_string();
    assert!(both.contains("keep one"), "{both}");
    assert!(
        load("rate_trace=\"\"\nqueue_ms=300")
            .unwrap_err()
            .to_string()
            .contains("rate_trace is empty")
    );
}

fn with_tables(tables: &str) -> Result<Profile, Error> {
    Profile::from_toml(&format!("name = \"t\"\n[up]\ndelay_ms = 1\n[down]\ndelay_ms = 1\n{tables}"))
}

#[test]
fn contradictory_rule_is_refused() {
    let error = |rule: &str| {
        with_tables(&format!("[[rules]]\nblock=true\n[[rules]]\n{rule}"))
            .expect_err("refused")
            .to_string()
    };
    assert!(error("port=443\nblock=true").starts_with("rules[2]: a port needs a protocol"));
    assert!(
        error("protocol='udp'")
            .starts_with("rules[2]: give either block = true or police_mbit_per_second")
    );
    assert!(error("block=true\npolice_mbit_per_second=5").contains("give either"));
    assert!(error("block=true\npolice_burst_bytes=5000").contains("give either"));
    assert!(
        error("police_mbit_per_second=5\npolice_burst_bytes=5")
            .starts_with("rules[2].police_burst_bytes is 5")
    );
    assert!(error("block=true\nafter_ms=10\nuntil_ms=10").starts_with("rules[2].until_ms is 10"));
    assert!(error("block=true\nprotocol='quic'").contains("unknown variant `quic`"));
    assert!(error("block=true\nports=3").contains("unknown field `ports`"));
    assert!(error("block=true\nprotocol='tcp'\nport=0").contains("port 0"));
    let policed = with_tables("[[rules]]\npolice_mbit_per_second=5").unwrap();
    assert_eq!(
        policed.rules[0].action(),
        Action::Police { bits_per_second: 5_000_000, burst_bytes: 62_500 }
    );
    assert_eq!(
        policed.hash(),
        with_tables("[[rules]]\npolice_burst_bytes=62500\npolice_mbit_per_second=5.0")
            .unwrap()
            .hash()
    );
    assert_ne!(policed.hash(), with_tables("").unwrap().hash());
    assert!(
        with_tables(&"[[rules]]\nblock=true\n".repeat(65))
            .unwrap_err()
            .to_string()
            .contains("65 [[rules]] are given")
    );
}

#[test]
fn unordered_or_empty_change_is_refused() {
    let error = |changes: &str| with_tables(changes).expect_err("refused").to_string();
    assert!(error("[[changes]]\nafter_ms=5").starts_with("changes[1]: nothing changes"));
    assert!(
        error("[[changes]]\nafter_ms=0\nnew_client_address=true")
            .starts_with("changes[1].after_ms is 0")
    );
    let twice = "[[changes]]\nafter_ms=5\nnew_client_address=true\n".repeat(2);
    assert!(error(&twice).starts_with("changes[2]: after_ms is not later"));
    assert!(
        error("[[changes]]\nafter_ms=5\nup={delay_ms=-1}")
            .starts_with("changes[1].up.delay_ms is -1")
    );
    let profile =
        with_tables("[[changes]]\nafter_ms=5\n[changes.up]\ndelay_ms=3\n[[changes]]\nafter_ms=6\nnew_client_address=true").unwrap();
    assert_eq!(
        (profile.changes[0].after_ns, profile.changes[0].up.as_ref().unwrap().delay_ns),
        (5_000_000, 3_000_000)
    );
    assert_eq!((&profile.changes[0].down, profile.changes[1].new_client_address), (&None, true));
    assert_ne!(profile.hash(), with_tables("").unwrap().hash());
}

#[test]
fn missing_file_is_named() {
    let error = Profile::load(Path::new("no-such-profile.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read profile no-such-profile.toml: "), "{error}");
}

#[test]
fn hash_depends_on_meaning_not_spelling() {
    let a = with_up("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 1").unwrap();
    let b =
        with_up("# other words\nqueue_bytes = 1500\nrate_mbit_per_second = 12.0\ndelay_ms = 1.0")
            .unwrap();
    let c = with_up("delay_ms = 1.1\nrate_mbit_per_second = 12\nqueue_ms = 1").unwrap();
    assert_eq!(a.hash(), b.hash());
    assert_ne!(a.hash(), c.hash());
    assert_eq!(a.hash().len(), "sha256:".len() + 64);
}

#[test]
fn profiles_of_the_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let profile = Profile::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap().to_str().unwrap(), profile.name);
        names.push(profile.name);
    }
    for name in [
        "dc-far",
        "dc-near",
        "fibre",
        "handover",
        "inflight",
        "lte",
        "lte-bad",
        "lte-bad-uplink",
        "reorder",
        "udp-blocked",
    ] {
        assert!(names.iter().any(|found| found == name), "{name} is missing");
    }
}

#[test]
fn without_jitter_changes_nothing_else() {
    let text = |up: &str, changed: &str| {
        let rate = "rate_mbit_per_second = 12\nqueue_ms = 100";
        format!(
            "name = 'a'\n[up]\n{rate}\ndelay_ms = 5\nloss_percent = 1\n{up}\n[down]\ndelay_ms = \
                5\n\
             [[changes]]\nafter_ms = 10\n[changes.down]\ndelay_ms = 9\n{changed}"
        )
    };
    let profile =
        Profile::from_toml(&text("jitter_ms = 2", "jitter_ms = 3\nreorder = true")).unwrap();
    let steady = Profile::from_toml(&text("", "")).unwrap();
    let without = profile.without_jitter();
    assert_eq!((without.name.as_str(), without.hash()), ("a-steady", steady.hash()));
    assert_ne!(profile.hash(), steady.hash());
    assert_eq!(steady.without_jitter(), steady);
}

#[test]
fn jitter_with_a_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t"), "1\n5\n").unwrap();
    let load = |keys: &str| {
        let path = folder.path().join("p.toml");
        std::fs::write(&path, format!("name='t'\n[up]\nrate_trace='t'\nqueue_bytes=9000\ndelay_ms=5\n{keys}\n[down]\ndelay_ms=5")).unwrap();
        Profile::load(&path).map_err(|error| error.to_string())
    };
    assert!(load("jitter_ms=2").unwrap_err().contains("up: jitter_ms does not go with rate_trace"));
    assert!(load("jitter_ms=2\nreorder=true").is_ok());
    assert!(load("").is_ok());
}

#[test]
fn new_meaning_of_jitter_changes_the_hash() {
    let hash = |keys: &str| with_up(&format!("delay_ms = 5\n{keys}")).unwrap().hash();
    // The hash from earlier results, in which jitter was a delay that changed linearly.
    assert_ne!(
        hash("jitter_ms = 2"),
        "sha256:f6ba5094585aed4d4570f7e7ec28e34e882a2a4018eed868ce30708898a18f98"
    );
}
