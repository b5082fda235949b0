//! Tests of configuration errors and warnings.

use std::path::Path;

use super::{AdminAccess, AdminListen, Config, Problem, Token};

fn load(text: &str) -> Result<Config, Vec<Problem>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pronghorn.toml");
    std::fs::write(&file, text).expect("write");
    Config::load_with(&file, &|_| None)
}

/// The problems without the folder.
fn problems(text: &str) -> Vec<String> {
    lines(load(text).err().unwrap_or_default())
}

fn lines(problems: Vec<Problem>) -> Vec<String> {
    let short = |mut problem: Problem| {
        problem.file = problem.file.file_name().map(Into::into).unwrap_or_default();
        problem.to_string()
    };
    problems.into_iter().map(short).collect()
}

const SITE: &str = "[server]\nlisten = [\"http://127.0.0.1:0\"]\n[[sites]]\nhosts = \
    [\"a\"]\n[[sites.routes]]\nrespond = \"x\"\n";

#[test]
fn smallest_site_is_right() {
    let config = load(SITE).expect("it is right");
    assert_eq!(config.sites.len(), 1);
    assert_eq!(config.warnings, []);
}

#[test]
fn each_error_is_told_with_its_line() {
    let text = "[server]\nlisten = [\"nowhere\", \"http://127.0.0.1:0\"]\nworker = 2\nwokers = \
        3\ncongestion = \"cubik\"\nworkers = \"two\"\n\n\
                [[sites]]\nhosts = [\"https://a\"]\ncleartext \
                = \"serve\"\n[[sites.routes]]\nmatch = \"api\"\nrespnd = \"x\"\n\
                redirect = { status = 301 }\n[[sites.routes]]\nrespond = { status = 99 \
                }\n\n[upstreams.app]\nservers = [\"127.0.0.1:80\"]\n";
    let found = problems(text);
    let expected = [
        "pronghorn.toml:2:11: invalid listen address \"nowhere\": use a form such as [::]:443, \
            127.0.0.1:8443 or http://[::]:80",
        "pronghorn.toml:3:1: unknown key \"worker\"; did you mean \"workers\"?",
        "pronghorn.toml:4:1: unknown key \"wokers\"; did you mean \"workers\"?",
        "pronghorn.toml:5:14: unknown variant `cubik`, expected one of `cubic`, `newreno`, `bbr`; \
            did you mean \"cubic\"?",
        "pronghorn.toml:6:11: invalid type: text \"two\", expected a whole number from 0 to 65535; \
            write it without quotes",
        "pronghorn.toml:9:10: invalid host name \"https://a\": remove the scheme and path",
        "pronghorn.toml:10:1: unknown key \"cleartext\"; did you mean \"clear_text\"?",
        "pronghorn.toml:12:9: invalid path \"api\": it must begin with a slash, as in /api/*",
        "pronghorn.toml:13:1: unknown key \"respnd\"; did you mean \"respond\"?",
        "pronghorn.toml:14:12: missing field `to`",
        "pronghorn.toml:16:22: invalid status 99: must be from 200 to 599",
        "pronghorn.toml:19:12: invalid server address \"127.0.0.1:80\": it must begin with \
            http://, https://, unix: or fastcgi://",
    ];
    assert_eq!(found, expected, "{found:#?}");
}

#[test]
fn each_error_in_a_list_of_matches_is_told_with_its_line() {
    let with = |matches: &str| {
        let text = SITE.replace("respond", &format!("match = {matches}\nrespond"));
        problems(&text)
    };
    let expected = "a path such as \"/api/*\", or { path = \"/api/*\", method = \"GET\" }";
    assert_eq!(
        with("[\"/a/*\", { path = [\"/b\"], method = \"GET\" }, { host = \"a\" }]"),
        [] as [&str; 0]
    );
    assert_eq!(
        with("[\n\"/a\",\n\"b\",\n{ pth = \"/c\" },\n{ path = \"/d\", method = \"get\" },\n7,\n]"),
        [
            "pronghorn.toml:8:1: invalid path \"b\": it must begin with a slash, as in /api/*",
            "pronghorn.toml:9:3: unknown key \"pth\"; did you mean \"path\"?",
            "pronghorn.toml:10:25: invalid method \"get\": use capital letters, as in GET",
            &format!("pronghorn.toml:11:1: invalid type: integer `7`, expected {expected}"),
        ]
    );
    assert_eq!(
        with("[\"b\"]"),
        ["pronghorn.toml:6:10: invalid path \"b\": it must begin with a slash, as in /api/*"],
        "an error is reported once"
    );
    assert_eq!(
        with("7"),
        [format!(
            "pronghorn.toml:6:9: invalid type: integer `7`, expected {expected}, or a list of \
                these"
        )]
    );
    let hint = "add a path such as \"/api/*\", or leave `match` out to match all requests";
    assert_eq!(
        with("[]"),
        [format!("pronghorn.toml:6:1: `match` is empty, so the route never matches; {hint}")]
    );
    assert!(
        problems(&format!(
            "{SITE}[[sites.routes.match]]\npath = \"/a\"\n[[sites.routes.match]]\npaht = \"/b\"\n"
        ))[0]
            .starts_with("pronghorn.toml:10:1: unknown key \"paht\"; did you mean \"path\"?")
    );
}

#[test]
fn value_of_the_wrong_type_is_told_in_the_words_of_toml() {
    let server =
        |line: &str| problems(&SITE.replace("[server]\n", &format!("[server]\n{line}\n"))).concat();
    for (line, message) in [
        (
            "workers = \"4\"",
            "text \"4\", expected a whole number from 0 to 65535; write it without quotes",
        ),
        ("workers = 70000", "integer `70000`, expected a whole number from 0 to 65535"),
        (
            "grace = 10",
            "integer `10`, expected a time: a whole number with ms, s, m or h; write it in quotes, \
                such as \"30s\"",
        ),
        ("http3 = \"yes\"", "text \"yes\", expected true or false; write it without quotes"),
        ("name = []", "a list, expected text; write it in quotes"),
        ("state_dir = 4", "integer `4`, expected a path; write it in quotes"),
        ("alt_svc = 1", "integer `1`, expected a table; write it as { key = … }"),
        (
            "trusted_proxies = \"10.0.0.0/8\"",
            "text \"10.0.0.0/8\", expected a list; write it in square brackets, as in \
                [\"10.0.0.0/8\"]",
        ),
    ] {
        let found = server(line);
        assert!(
            found.starts_with("pronghorn.toml:2:") && found.ends_with(message),
            "{line}: {found}"
        );
    }
    assert_eq!(
        problems("[[sites.routes]]\nrespond = \"x\"\n"),
        [
            "pronghorn.toml:1:3: invalid type: a table, expected a list of tables; write [[sites]] in \
                double brackets, and before the tables in it such as [[sites.…]]"
        ]
    );
}

#[test]
fn host_that_is_no_name_is_told_by_its_fault() {
    for (host, hint) in [
        ("EXAMPLE.org.", "remove the trailing dot"),
        ("a b", "write each name as its own string, without spaces"),
        ("a..b", "remove the empty label"),
        ("bücher.example", "use the ASCII form of international names (xn--…)"),
        ("a!b", "use only letters, digits, hyphens, underscores and dots"),
        ("a:1", "remove the port"),
    ] {
        let found =
            problems(&SITE.replace("hosts = [\"a\"]", &format!("hosts = [{host:?}]"))).concat();
        assert!(found.contains(&format!("invalid host name {host:?}: {hint}")), "{found}");
    }
}

#[test]
fn missing_table_entry_is_told_at_its_table() {
    let text =
        "[[sites]]\ntls = \"development\"\n[[sites.routes]]\nproxy = { policy = \"first\" }\n";
    let found = problems(text);
    assert_eq!(
        found,
        [
            "pronghorn.toml:1:1: missing field `hosts`",
            "pronghorn.toml:4:9: missing field `servers`"
        ],
        "{found:#?}"
    );
}

#[test]
fn broken_syntax_is_told_alone() {
    let found = problems("[server\nlisten = 5\n");
    assert!(found.len() == 1 && found[0].starts_with("pronghorn.toml:1:"), "{found:#?}");
}

#[test]
fn contradictions_are_told() {
    for (change, message) in [
        (
            "[[sites]]\nhosts = [\"A\"]\n[[sites.routes]]\nrespond = \"\"\n",
            "8:10: duplicate host: another site already has it",
        ),
        ("[[sites]]\nhosts = [\"b\"]\n", "the site has no routes"),
        (
            "[[sites]]\nhosts = [\"b\"]\ntls = \"development\"\n[[sites.routes]]\nrespond \
                = \"\"\n",
            "9:1: no listener uses TLS",
        ),
        ("[[sites.routes]]\nmatch = \"/x\"\n", "7:1: the route has no action"),
        (
            "[[sites.routes]]\nmatch = \"/x\"\nfiles = \"a\"\nrespond = \"b\"\n",
            "10:1: the route has both `files` and `respond`; a route has one action",
        ),
        (
            "[[sites.routes]]\nmatch = \"/x\"\nproxy = \"ap\"\n[upstreams.app]\nservers = \
                [\"http://a:1\"]\n",
            "did you mean \"app\"?",
        ),
        ("[[sites.routes]]\nproxy = \"api\"\n", "define it as [upstreams.api]"),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], health = { statuses = [404] \
                } }\n",
            "status 404 cannot count as a server failure",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], check = \"health\" }\n",
            "invalid path \"health\": use a path such as /health",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], check = { path = \"/\", \
                every = \"1ms\" } }\n",
            "use at least 100ms",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], check = { path = \"/\", \
                timeout = \"0s\" } }\n",
            "`timeout` must not be 0",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], check = { path = \"/\", \
                successes = 0 } }\n",
            "the number of checks must not be 0; use at least 1",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], check = { path = \"/\", \
                statuses = [20] } }\n",
            "invalid response status 20",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], resolve = \"10ms\" }\n",
            "use at least 1s, or 0s to resolve only for new connections",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], sticky = { cookie = \"a \
                b\", \
                secret = \"x\" } }\n",
            "invalid cookie name \"a b\"",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], sticky = { cookie = \"a\", \
                secret = \"short\" } }\n",
            "the secret is too short",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], requests = 0 }\n",
            "allow at least 1, or leave `requests` out",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], retry_budget = { percent = \
                2000 } }\n",
            "invalid value 2000: must be from 0 to 1600",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], policy = \"header\" }\n",
            "policy_header = \"x-user\"",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], policy_header = \"a\" }\n",
            "policy_header = \"x-user\"",
        ),
        ("[[sites.routes]]\nproxy = { servers = [] }\n", "the upstream has no servers"),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], protocol = \"http3\" }\n",
            "use https://a:1",
        ),
        (
            "[[sites.routes]]\nredirect = { to = \"/\", status = 200 }\n",
            "invalid redirect status 200",
        ),
        (
            "[[sites.routes]]\nstrip_prefix = true\nrespond = \"\"\n",
            "no matched path has a prefix to strip",
        ),
        (
            "[[sites.routes]]\nfiles = { root = \".\", fallback = \"../x\" }\n",
            "fallback \"../x\" is outside of the folder",
        ),
        (
            "[[sites.routes]]\nfiles = { root = \".\", index = [\"a/b\"] }\n",
            "invalid index file \"a/b\"",
        ),
        (
            "[[sites.routes]]\nrespond = \"\"\nerrors = { 200 = \"a\" }\n",
            "invalid error status \"200\"",
        ),
        ("[[sites.routes]]\nrespond = \"\"\nrewrite = \"new\"\n", "invalid rewrite target \"new\""),
        ("[admin]\nlisten = \"0.0.0.0:2019\"\n", "8:1: 0.0.0.0:2019 is not a loopback address"),
        (
            "[admin]\nlisten = \"127.0.0.1:2019\"\n",
            "8:1: every user of this machine can connect to this address; add token",
        ),
        ("[admin]\nlisten = \"unix:a.sock\"\ntoken = \"short\"\n", "9:1: the token is too short"),
        ("[log.qlog]\nfolder = \"q\"\nshare = 1.5\n", "9:1: invalid share 1.5"),
        ("[log.qlog]\nfolder = \"q\"\nfiles = 0\n", "9:1: `files` must not be 0"),
        (
            "[server.alt_svc]\nramp_up = { since = \"soon\", takes = \"1h\" }\n",
            "invalid date \"soon\": use a form such as",
        ),
        ("[admin]\nlisten = \"sock\"\n", "8:10: invalid admin API address \"sock\""),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"unix:/a\", fallback = \"a.html\" \
                }\n",
            "invalid script name \"a.html\"",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"unix:/a\", index = \
                [\"../a.php\"] \
                }\n",
            "invalid file name \"../a.php\"",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"unix:/a\", script_root = \"www\" \
                }\n",
            "use the absolute path",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"unix:/a\", variables = { A-B \
                = \"\" } }\n",
            "invalid variable name \"A-B\"",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"http://a:1\" }\n",
            "use fastcgi://a:1",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"127.0.0.1:9000\" }\n",
            "unix: or fastcgi://",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"fpm\" }\n",
            "an address such as \"unix:/run/php/php-fpm.sock\"",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = \"fpm\" \
                }\n[upstreams.fpm]\nservers \
                = [\"unix:/a\"]\n",
            "set protocol = \"fastcgi\" in [upstreams.fpm]",
        ),
        (
            "[[sites.routes]]\nphp = { root = \".\", server = { servers = [\"unix:/a\"], \
                protocol \
                = \"http2\" } }\n",
            "leave `protocol` out",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"fastcgi://a:1\"], protocol = \"http1\" }\n",
            "fastcgi://a:1 is a FastCGI server",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"fastcgi://a:1\", \"http://a:2\"] }\n",
            "use fastcgi://a:2",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"fastcgi://a:1\"], check = { path = \"/\", \
                script = \"a.php\" } }\n",
            "use the absolute path as PHP-FPM sees it",
        ),
        (
            "[[sites.routes]]\nproxy = { servers = [\"http://a:1\"], check = { path = \"/\", \
                script = \"/a.php\" } }\n",
            "leave it out: checks request `path`",
        ),
        ("[limits]\nidle_timout = \"3s\"\n", "idle_timeout"),
        ("[limits]\nidle_timeout = \"never\"\n", "8:1: "),
    ] {
        let found = problems(&format!("{SITE}{change}"));
        assert!(found.iter().any(|line| line.contains(message)), "{change}: {found:#?}");
    }
    assert_eq!(problems("[server]\nlisten = []\n").len(), 2);
}

#[test]
fn route_that_nothing_reaches_is_warned_of() {
    let config = load(&format!("{SITE}[[sites.routes]]\nmatch = \"/a/*\"\nrespond = \"y\"\n"))
        .expect("it is right");
    assert_eq!(
        lines(config.warnings),
        [
            "pronghorn.toml:7:1: unreachable route: route 1 of the site matches all its requests; the \
            first route that matches is used: move this one before it"
        ]
    );
}

#[test]
fn path_that_is_not_canonical_is_warned_of() {
    let warnings = |matches: &str, more: &str| {
        let text = SITE.replace("respond", &format!("match = {matches}\n{more}\nrespond"));
        lines(load(&text).expect("it is right").warnings)
    };
    assert_eq!(warnings("[\"/@admin/*\", \"/a%20b\"]", ""), [] as [&str; 0]);
    assert_eq!(
        warnings("{ path = [\"/a\", \"/%40admin/*\"] }", ""),
        [
            "pronghorn.toml:6:1: the path \"/%40admin/*\" is not in canonical form; it is compared as \
            \"/@admin/*\": use that form"
        ]
    );
    for (more, hint) in [
        ("", "no request matches it with paths = \"strict\""),
        ("paths = \"compatible\"", "with a slash as well"),
    ] {
        let found = warnings("\"/a%2Fb\"", more);
        assert!(found.len() == 1 && found[0].contains(hint), "{found:#?}");
    }
}

#[test]
fn variable_of_another_server_is_warned_of() {
    let warnings = |action: &str| {
        let text = SITE.replace("respond = \"x\"", action);
        assert_ne!(text, SITE);
        lines(load(&text).expect("it is right").warnings)
    };
    for (action, variable, hint) in [
        ("redirect = \"https://$host{path}\"", "$host", "use {host} and {path}"),
        ("rewrite = \"/docs/$1\"\nrespond = \"x\"", "$1", "use {path}"),
        (
            "request_headers = { set = { X-Real-IP = \"$remote_addr\" } }\nrespond = \"x\"",
            "$remote_addr",
            "{client} stands for the client's address",
        ),
        (
            "response_headers = { add = { X-From = \"at $hostname\" } }\nrespond = \"x\"",
            "$hostname",
            "write the value itself",
        ),
    ] {
        let found = warnings(action);
        let says = format!("{variable:?} is no variable here");
        assert!(found.len() == 1 && found[0].contains(&says), "{found:#?}");
        assert!(found[0].contains(hint), "{found:#?}");
    }
    for action in
        ["redirect = \"https://a.test{path}\"", "rewrite = \"/a?price=$\"\nrespond = \"x\""]
    {
        assert_eq!(warnings(action), [] as [&str; 0]);
    }
}

#[test]
fn list_of_matches_is_reached_where_one_of_them_is() {
    let warnings = |first: &str, second: &str| {
        let routes = [first, second]
            .map(|matches| format!("[[sites.routes]]\nmatch = {matches}\nrespond = \"x\"\n"))
            .concat();
        let head = SITE.split("[[sites.routes]]").next().expect("a head");
        load(&format!("{head}{routes}")).expect("it is right").warnings.len()
    };
    assert_eq!(warnings("[\"/a/*\", \"/b\"]", "[\"/b\", \"/a/c\"]"), 1);
    assert_eq!(
        warnings(
            "[\"/a/*\", { path = \"/b\", method = \"GET\" }]",
            "[{ path = \"/b\", method = \"GET\" }, \"/a/c\"]"
        ),
        1
    );
    assert_eq!(warnings("[\"/a/*\", { path = \"/b\", method = \"GET\" }]", "\"/b\""), 0);
    assert_eq!(warnings("\"/a/*\"", "[\"/a/b\", \"/b\"]"), 0);
}

#[test]
fn included_files_bring_sites_and_have_their_own_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("write");
    std::fs::create_dir(folder.path().join("sites")).expect("a folder");
    write("pronghorn.toml", &format!("include = [\"sites/*.toml\"]\n{SITE}"));
    write(
        "sites/b.toml",
        "[[sites]]\nhosts = [\"b\"]\n[[sites.routes]]\nproxy = \"b\"\n[upstreams.b]\nservers = \
            [\"http://b:1\"]\n",
    );
    let load = || Config::load_with(&folder.path().join("pronghorn.toml"), &|_| None);
    let config = load().expect("it is right");
    assert_eq!((config.sites.len(), config.upstreams.len()), (2, 1));
    assert_eq!(
        config.path(&config.sites[1].location, Path::new("x")),
        folder.path().join("sites/x")
    );

    write("sites/c.toml", "[[sites]]\nhosts = [\"c\"]\nnmae = 1\n[server]\n");
    write("sites/d.toml", "[upstreams.b]\nservers = [\"http://b:1\"]\n");
    let found = lines(load().expect_err("it is wrong"));
    assert_eq!(
        found,
        [
            "c.toml:3:1: unknown key \"nmae\"; known keys: hosts, tls, http3, clear_text, \
                response_headers, errors, errors_of_upstreams, layers, routes",
            "c.toml:4:2: unknown key \"server\"; known keys: upstreams, sites",
            "d.toml:1:12: duplicate upstream \"b\"; use a unique name",
        ],
        "{found:#?}"
    );
    write("pronghorn.toml", "include = [\"none.toml\"]\n");
    let found = lines(load().expect_err("it is wrong"));
    assert!(found[0].starts_with("pronghorn.toml:1:12: no such file"), "{found:#?}");
}

#[test]
fn file_that_is_not_there_is_one_line() {
    let problems = Config::load_with(Path::new("/nowhere/pronghorn.toml"), &|_| None)
        .expect_err("there is none");
    assert_eq!(
        lines(problems),
        [
            "pronghorn.toml: cannot read the file: No such file or directory (os error 2); check the \
            path"
        ]
    );
}

#[test]
fn admin_api_is_in_the_state_folder_unless_it_is_said() {
    let address = |text: &str| {
        load(&format!("{text}\n{SITE}"))
            .expect("it is right")
            .admin_address()
            .map_or("none".into(), |one| one.to_string())
    };
    assert_eq!(address(""), "none");
    assert_eq!(address("[admin]\nlisten = \"unix:/run/a.sock\""), "unix:/run/a.sock");
    let with_state = SITE.replace("[server]", "[server]\nstate_dir = \"/var/lib/p\"");
    let in_state = load(&with_state).expect("it is right").admin_address();
    assert_eq!(in_state, Some(AdminListen::Unix("/var/lib/p/admin.sock".into())));
    let off = load(&format!("[admin]\nlisten = \"off\"\n{with_state}")).expect("it is right");
    assert_eq!(off.admin_address(), Some(AdminListen::Off));
}

#[test]
fn access_to_the_admin_api_is_read_from_a_file_that_is_wrong_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pronghorn.toml");
    let access = |text: &[u8]| {
        std::fs::write(&file, text).expect("write");
        AdminAccess::read_with(&file, &|name| (name == "STATE").then(|| "kept".to_owned()))
    };
    let socket = Some(AdminListen::Unix(folder.path().join("kept/admin.sock")));
    let wrong: [&[u8]; 5] = [
        b"listen = [\"${NONE}\"]",
        b"workers = \"many\"",
        b"unknown = 1",
        b"[[sites]]\nhosts = [",
        b"name = \"\xff\"",
    ];
    for rest in wrong {
        let text = [b"[server]\nstate_dir = \"${STATE}\"\n", rest, b"\n"].concat();
        assert_eq!(access(&text).expect("it is said").address, socket, "{}", rest.escape_ascii());
    }
    let tcp = access(
        b"x = \n[admin]\nlisten = \"127.0.0.1:1\"\ntoken = \"t\"\n[server]\nstate_dir \
            = \"${NONE}\"\n",
    )
    .expect("it is said");
    assert_eq!(tcp.address.map(|one| one.to_string()).as_deref(), Some("http://127.0.0.1:1"));
    assert_eq!(tcp.token.as_ref().map(Token::reveal), Some("t"));
    assert!(tcp.syntax.is_some_and(|problem| problem.position == Some((1, 5))));
    for wrong in
        ["listen = 1", "listen = \"nowhere\"", "listen = \"${NONE}\"", "token = \"${file:none}\""]
    {
        let problem = access(format!("[admin]\n{wrong}\n").as_bytes()).expect_err("it is not said");
        assert_eq!(problem.position.map(|(line, _)| line), Some(2), "{wrong}: {problem}");
    }
    assert_eq!(access(b"").expect("it is right").address, None);
}

#[test]
fn token_is_compared_whole_and_never_shown() {
    let text = format!("[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"0123456789abcdef\"\n{SITE}");
    let token = load(&text).expect("it is right").admin.token.expect("a token");
    assert!(
        token.is(b"0123456789abcdef")
            && !token.is(b"0123456789abcdeF")
            && !token.is(b"0123456789abcde")
            && !token.is(b"")
    );
    assert!(!format!("{token:?}").contains("0123"));
}

#[test]
fn certificates_are_ordered_only_for_what_an_authority_can_prove() {
    let with = |acme: &str, hosts: &str| {
        let server = "[server]\nlisten = [\"127.0.0.1:0\"]\nstate_dir = \"state\"\n";
        problems(&format!(
            "{server}{acme}\n[[sites]]\nhosts = [{hosts}]\ntls \
                = \"acme\"\n[[sites.routes]]\nrespond = \"x\"\n"
        ))
    };
    let agreed = "[acme]\nterms_agreed = true";
    assert_eq!(with(agreed, "\"a.example\", \"b.example\""), [] as [&str; 0]);
    let hint = "list each host, or set `tls = { cert = …, key = … }` for the site";
    let star = "a wildcard certificate cannot be ordered with these challenges";
    for (host, message) in [
        ("\"*.a.example\"", star),
        ("\"*\"", star),
        ("\"127.0.0.1\"", "ACME certificates need a host name, not an IP address"),
        ("\"[::1]\"", "ACME certificates need a host name, not an IP address"),
        ("\"localhost\"", "a public authority issues no certificate for a name without a dot"),
        ("\"a_b.example\"", "no authority issues a certificate for this name"),
    ] {
        assert_eq!(
            with(agreed, host),
            [format!("pronghorn.toml:7:10: {message}; {hint}")],
            "{host}"
        );
    }
    let private = "[acme]\nterms_agreed = true\ndirectory = \"https://ca/dir\"";
    assert_eq!(with(private, "\"localhost\""), [] as [&str; 0]);
    let one = |acme: &str| with(acme, "\"a.example\"").pop().unwrap_or_default();
    assert!(
        one("").ends_with("set `terms_agreed = true` in [acme] when you have read them"),
        "{}",
        one("")
    );
    for (more, message) in [
        ("directory = \"http://ca/dir\"", "invalid ACME directory \"http://ca/dir\""),
        ("email = \"admin\"", "invalid email address"),
        ("challenges = []", "`challenges` is empty, so no certificate can be issued"),
        ("challenges = [\"http-01\"]", "the \"http-01\" challenge needs a clear-text listener"),
        ("challenges = [\"dns-01\"]", "unknown variant `dns-01`"),
        ("external_account = { id = \"a\", key = \"+/\" }", "invalid key: not base64url"),
    ] {
        let found = one(&format!("{agreed}\n{more}"));
        assert!(found.contains(message), "{found}");
    }
    let stateless = "[acme]\nterms_agreed = true\n[[sites]]\nhosts = [\"a.example\"]\ntls \
        = \"acme\"\n[[sites.routes]]\nrespond = \"x\"\n";
    assert!(
        problems(stateless).concat().contains("missing state directory to store certificates in")
    );
}

#[test]
fn unix_socket_is_an_absolute_path() {
    let server = |address: &str| address.parse::<super::ServerAddress>();
    for (text, path) in [
        ("unix:/run/app.sock", "unix:/run/app.sock"),
        ("unix:///run/app.sock", "unix:/run/app.sock"),
    ] {
        let address = server(text).expect(text);
        assert_eq!(
            (address.to_string().as_str(), address.authority.as_str(), address.secure),
            (path, "localhost", false)
        );
    }
    let long = |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1));
    assert!(server(&long(107)).is_ok());
    for (text, reason) in [
        ("unix:run/app.sock", "with an absolute path"),
        ("unix:/run/", "with an absolute path"),
        ("unix://run/app.sock", "with an absolute path"),
        ("unix:", "with an absolute path"),
        ("unix:@app", "abstract sockets"),
        ("unix:/run/app.sock:/path", "it must end with the socket"),
        ("unix//run/app.sock", "use unix:/run/app.sock; HTTP over it"),
        ("http://unix:/run/app.sock", "use unix:/run/app.sock; HTTP over it"),
        ("https://unix:/run/app.sock", "in clear text"),
        (&long(108), "longer than 107 bytes"),
    ] {
        let error = server(text).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn http3_over_a_unix_socket_is_told() {
    let text = format!(
        "{SITE}[[sites.routes]]\nproxy = {{ servers = [\"unix:/run/app.sock\"], protocol \
            = \"http3\" }}\n"
    );
    let found = problems(&text);
    assert!(
        found.len() == 1 && found[0].contains("HTTP/3 is not possible over a Unix socket"),
        "{found:#?}"
    );
}

#[test]
fn only_what_speaks_fastcgi_is_buffered_unless_it_is_said() {
    let buffers = |upstream: &str| {
        let text =
            format!("{SITE}[[sites.routes]]\nproxy = \"app\"\n[upstreams.app]\n{upstream}\n");
        load(&text).expect(upstream).upstreams["app"]
            .buffers()
            .map(|table| (table.memory.0, table.disk.0))
    };
    let default = Some((256 << 10, 1 << 30));
    assert_eq!(buffers("servers = [\"http://a:80\"]"), None);
    assert_eq!(buffers("servers = [\"http://a:80\"]\nbuffering = \"on\""), default);
    assert_eq!(buffers("servers = [\"fastcgi://a\"]"), default);
    assert_eq!(buffers("servers = [\"unix:/a\"]\nprotocol = \"fastcgi\""), default);
    assert_eq!(buffers("servers = [\"fastcgi://a\"]\nbuffering = \"off\""), None);
    assert_eq!(
        buffers("servers = [\"fastcgi://a\"]\nbuffering = { disk = \"0\" }"),
        Some((256 << 10, 0))
    );
}

#[test]
fn buffering_that_cannot_be_is_told() {
    let with = |server: &str, upstream: &str| {
        let server = SITE.replace("[[sites]]", &format!("{server}\n[[sites]]"));
        problems(&format!(
            "{server}[[sites.routes]]\nproxy = {{ servers = [\"http://a:80\"], buffering = \
                {upstream} }}\n"
        ))
    };
    let found = with("", "\"yes\"");
    assert!(
        found.len() == 1
            && found[0].contains("invalid buffering \"yes\": use \"on\", \"off\", or {"),
        "{found:#?}"
    );
    let found = with("buffering = { memory = \"1MiB\" }", "{ memory = \"2MiB\" }");
    let told = "the buffer for one response exceeds the total for all responses; lower it, or \
        raise `buffering.memory` in [server]";
    assert!(found.len() == 1 && found[0].contains(told), "{found:#?}");
    assert_eq!(
        with("buffering = { memory = \"64KiB\", disk = \"1MiB\" }", "\"on\""),
        [] as [&str; 0],
        "what is not said follows"
    );
}
