//! Passwords, users, TLS and Unix sockets.

use std::path::Path;

use pronghorn_fleet::sessions::{
    RedisServers, RedisSessions, RedisSessionsConfig, RedisTls, StartError,
};

use crate::server::{Server, eventually, free_port, is_installed};
use crate::store::{config, connected, has_line, logged, put, secrets, start, take, value};

#[test]
fn wrong_password_is_logged_and_costs_sessions_only() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&["--requirepass", "right"]);
    for (password, reason) in [(Some("wrong"), "WRONGPASS"), (None, "NOAUTH")] {
        let mut config = config(server.servers());
        config.password = password.map(str::to_owned);
        let lines = logged(&mut config);
        let store = start(config);
        eventually(reason, || has_line(&lines, reason));
        assert_eq!(take(&store, 1), None);
        assert_eq!(value(&store, "servers_reachable"), 0);
        assert!(!has_line(&lines, "wrong:"), "{lines:?}");
    }
    let mut config = config(server.servers());
    config.password = Some("right".to_owned());
    let store = connected(config);
    put(&store, 1);
    assert_eq!(take(&store, 1), Some(true));
}

#[test]
fn user_needs_only_the_documented_commands() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    server.admin().ok(
        "ACL SETUSER fleet on >word ~pronghorn:session:* resetchannels -@all +auth +get +getdel \
         +set +info",
    );
    let mut config = config(RedisServers::Single(vec![
        format!("redis://fleet:word@127.0.0.1:{}", server.port).parse().unwrap(),
    ]));
    // The address has precedence.
    config.password = Some("other".to_owned());
    let store = connected(config);
    put(&store, 1);
    assert_eq!(take(&store, 1), Some(true));
}

#[test]
fn missing_permission_is_logged() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    server.admin().ok("ACL SETUSER fleet on >word ~* -@all +auth +get +set +info");
    let address = format!("redis://fleet:word@127.0.0.1:{}", server.port).parse().unwrap();
    let mut config = config(RedisServers::Single(vec![address]));
    let lines = logged(&mut config);
    let _store = start(config);
    eventually("the reason is logged", || has_line(&lines, "NOPERM"));
}

#[test]
fn other_database_is_used() {
    if !is_installed() {
        return;
    }
    let server = Server::start(&[]);
    let address = format!("redis://127.0.0.1:{}/3", server.port).parse().unwrap();
    let store = connected(config(RedisServers::Single(vec![address])));
    put(&store, 1);
    let mut admin = server.admin();
    assert_eq!(admin.size(), "0");
    admin.ok("SELECT 3");
    assert_eq!(admin.size(), "1");
    assert_eq!(take(&store, 1), Some(true));
}

#[test]
fn unix_socket_is_used() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let _server = Server::start(&["--unixsocket", socket.to_str().unwrap()]);
    let address = format!("unix://{}", socket.display()).parse().unwrap();
    let store = connected(config(RedisServers::Single(vec![address])));
    put(&store, 1);
    assert_eq!(take(&store, 1), Some(true));
}

#[test]
fn tls_needs_the_authority_and_the_client_certificate() {
    if !is_installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = certificates(folder.path());
    let [ca, chain, key] = files.each_ref().map(|file| file.to_str().unwrap());
    let tls_port = free_port();
    let port = tls_port.to_string();
    let _server = Server::start(&[
        "--tls-port",
        &port,
        "--tls-ca-cert-file",
        ca,
        "--tls-cert-file",
        chain,
        "--tls-key-file",
        key,
    ]);
    let address = format!("rediss://localhost:{tls_port}");
    let servers = RedisServers::Single(vec![address.parse().unwrap()]);
    let with = |tls: RedisTls| {
        let mut config = config(servers.clone());
        config.tls = Some(tls);
        config
    };
    let identity = Some((files[1].as_path(), files[2].as_path()));
    let store = connected(with(RedisTls::new(Some(&files[0]), identity).unwrap()));
    put(&store, 1);
    assert_eq!(take(&store, 1), Some(true));
    // The system does not know the authority; the server wants a certificate.
    for tls in [RedisTls::new(None, identity), RedisTls::new(Some(&files[0]), None)] {
        let mut config = with(tls.unwrap());
        let lines = logged(&mut config);
        let store = start(config);
        eventually("the reason is logged", || has_line(&lines, "is not reachable"));
        assert_eq!(value(&store, "servers_reachable"), 0);
    }
}

fn certificates(folder: &Path) -> [std::path::PathBuf; 3] {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    let mut params = CertificateParams::default();
    // By default, all certificates have the same name, and would seem to be signed by themselves.
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let files = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name));
    std::fs::write(&files[0], ca.pem()).unwrap();
    std::fs::write(&files[1], certificate.pem()).unwrap();
    std::fs::write(&files[2], key.serialize_pem()).unwrap();
    files
}

#[test]
fn invalid_settings_are_refused_with_the_reason() {
    let cluster = |url: &str| RedisServers::Cluster(vec![url.parse().unwrap()]);
    let single = RedisServers::Single(vec!["redis://127.0.0.1".parse().unwrap()]);
    let refused = |config: RedisSessionsConfig| -> StartError {
        RedisSessions::start(config, &secrets(&[1])).unwrap_err()
    };
    let none = refused(config(RedisServers::Single(Vec::new())));
    assert!(matches!(none, StartError::NoServer), "{none}");
    let database = refused(config(cluster("redis://127.0.0.1/1")));
    assert!(matches!(database, StartError::ClusterDatabase), "{database}");
    let mut wrong = config(single.clone());
    wrong.timeout = std::time::Duration::ZERO;
    assert!(refused(wrong).to_string().contains("1 ms to 10 s"));
    let mut wrong = config(single);
    wrong.prefix = "{one}:".to_owned();
    assert!(refused(wrong).to_string().contains("`{one}:`"));
    let missing = RedisTls::new(Some(Path::new("/nowhere/ca.pem")), None).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/ca.pem"), "{missing}");
}
